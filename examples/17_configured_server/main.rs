//! From a configuration file to a running server: engine, queue and buffers are read from TOML.
//!
//! The server stores objects. A client sends the length of an object, 4 bytes with the lowest first, and its
//! bytes; the response is the CRC-32C of the stored bytes. The socket is read straight into a registered
//! buffer, and the engine copies it and computes the checksum.
//!
//! `cargo run --example 17_configured_server` starts the server of `server.toml`, which is beside this file,
//! runs some clients, and ends. With a file as its argument it serves until it is interrupted. `--schema`
//! prints the schema of the file.

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
    /// The engine that copies.
    engine: EngineName,
    #[serde(default)]
    queue: SharedQueueOptions,
    /// Buffers that objects are received in.
    pool: PoolOptions,
    /// Memory of each connection's newest object.
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
            // The pool bounds the memory of all connections: this waits while all buffers of the size are in
            // use. If each task held one buffer and waited for another, all could wait forever. So
            // each takes only one at a time.
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
            // The text of an error in the configuration shows the line and the remedy.
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
