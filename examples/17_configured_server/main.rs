//! A server whose engine, queue and buffers are configured by a TOML file.
//!
//! The server stores objects. A client sends the length of an object (4 bytes, little-endian) and its bytes.
//! The response is the CRC-32C of the stored bytes. The server reads the socket directly into a registered
//! buffer, and the engine copies the bytes and computes the checksum.
//!
//! `cargo run --example 17_configured_server` starts the server with the file `server.toml` beside this
//! source, runs some clients, and ends. With another file as its argument, it serves until it is
//! interrupted. `--schema` prints the schema of the configuration file.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use dma::EngineName;
use dma::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The configuration file.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The address to listen at.
    listen: SocketAddr,
    /// The name of the engine that copies.
    engine: EngineName,
    #[serde(default)]
    queue: SharedQueueOptions,
    /// Buffers into which objects are received.
    pool: PoolOptions,
    /// Memory for the newest object of each connection.
    object: MemoryRequest,
}

/// A running server's engine, queue and buffers, which all connections share.
#[derive(Clone)]
struct Store {
    engine: Arc<dyn DmaEngine>,
    queue: SharedQueue,
    pool: BufferPool,
    object: MemoryRequest,
}

impl Store {
    fn open(config: &Config) -> dma::Result<Self> {
        let engine = dma::open_name(&config.engine)?;
        let queue = engine.open_shared_queue(&config.queue)?;
        let pool = BufferPool::new(&engine, &config.pool)?;
        Ok(Self { engine, queue, pool, object: config.object.clone() })
    }

    /// Serves one connection until the client closes it.
    async fn serve(self, mut stream: TcpStream) -> Result<(), Box<dyn Error + Send + Sync>> {
        let object = self.engine.allocate_window(&self.object)?;
        loop {
            let len = match stream.read_u32_le().await {
                Ok(len) => len as usize,
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            if len > object.len() {
                return Err(format!("an object of {len} bytes; the longest has {}", object.len()).into());
            }
            // Waits while all buffers of this size are in use, so the pool limits the memory of all
            // connections. Each task takes only one buffer at a time: tasks that hold one buffer and wait
            // for another one can deadlock.
            let mut received = self.pool.get(len).await?;
            stream.read_exact(&mut received).await?;
            let operands = (received, object.slice(..len));
            let stored = self.queue.when_ready(operands, |(src, dst)| self.queue.copy_crc32c(src, dst, 0));
            let (_, crc) = stored.await?;
            stream.write_u32_le(crc).await?;
        }
    }
}

async fn accept(listener: TcpListener, store: Store) -> std::io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        let serving = store.clone().serve(stream);
        tokio::spawn(async move {
            if let Err(e) = serving.await {
                eprintln!("{peer}: {e}");
            }
        });
    }
}

/// Sends some objects and checks the responses.
async fn client(server: SocketAddr, seed: u8) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(server).await?;
    let mut sent = 0;
    for len in [0, 100, 16 << 10, 500_000] {
        let object: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(seed)).collect();
        stream.write_u32_le(len as u32).await?;
        stream.write_all(&object).await?;
        assert_eq!(stream.read_u32_le().await?, crc32c::crc32c(&object), "{len} bytes");
        sent += len;
    }
    Ok(sent)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // An error in the configuration names the line and the remedy.
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    let text = match argument.as_deref() {
        Some("--schema") => {
            println!("{}", serde_json::to_string_pretty(&schemars::schema_for!(Config))?);
            return Ok(());
        }
        Some(path) => std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?,
        None => include_str!("server.toml").to_owned(),
    };
    let config: Config = toml::from_str(&text)?;
    let store = Store::open(&config)?;
    let listener = TcpListener::bind(config.listen).await?;
    let address = listener.local_addr()?;
    println!("{} serves at {address}", config.engine);
    let serving = tokio::spawn(accept(listener, store.clone()));
    if argument.is_some() {
        return Ok(serving.await??);
    }
    let clients: Vec<_> = (1..=3).map(|seed| tokio::spawn(client(address, seed))).collect();
    for client in clients {
        println!("{} bytes stored", client.await??);
    }
    serving.abort();
    Ok(())
}
