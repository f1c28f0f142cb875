//! A server whose engine, queue and buffers are configured by a TOML file.
//!
//! The server stores objects. A client sends the length of an object (4 bytes, little-endian) and its bytes.
//! The response is the CRC-32C of the stored bytes. The server reads the socket directly into a registered
//! buffer, and the engine copies the bytes and computes the checksum.
//!
//! `cargo run --example 17_configured_server` starts the server with the file `server.toml` beside this
//! source, runs some clients, and ends. With another file as its argument, it serves until it receives
//! SIGTERM or SIGINT. `--schema` prints the schema of the configuration file. `RUST_LOG` filters the log on
//! stderr.

mod scrape;

use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dma::prelude::*;
use dma::{EngineName, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{RwLock, watch};
use tokio::task::{JoinSet, spawn_blocking};

type Failure = Box<dyn Error + Send + Sync>;

/// Time for connections and copies to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// The configuration file.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The address to listen at.
    listen: SocketAddr,
    /// The address at which Prometheus reads the metrics. Without it, no metrics are served.
    metrics: Option<SocketAddr>,
    /// The name of the engine that copies.
    engine: EngineName,
    #[serde(default)]
    queue: SharedQueueOptions,
    /// Buffers into which objects are received.
    pool: PoolOptions,
    /// Memory for the newest object of each connection.
    object: MemoryRequest,
}

/// The open engine, its queue and its buffers.
#[derive(Clone)]
struct Store {
    engine: Arc<dyn DmaEngine>,
    queue: SharedQueue,
    pool: BufferPool,
}

impl Store {
    /// Opens the engine. An error names the key of the configuration.
    fn open(config: &Config) -> Result<Self, Failure> {
        let of = |key: &'static str| move |e: dma::Error| format!("`{key}`: {e}");
        let engine = dma::open_name(&config.engine).map_err(of("engine"))?;
        let queue = engine.open_shared_queue(&config.queue).map_err(of("queue"))?;
        let pool = BufferPool::new(&engine, &config.pool).map_err(of("pool"))?;
        Ok(Self { engine, queue, pool })
    }
}

/// The server, which all connections share.
struct Server {
    config: Config,
    store: RwLock<Store>,
    /// Becomes true when the server ends.
    ending: watch::Sender<bool>,
}

impl Server {
    /// Serves one connection until the client closes it or the server ends.
    async fn serve(&self, mut stream: TcpStream) -> Result<(), Failure> {
        let store = self.store.read().await.clone();
        let object =
            store.engine.allocate_window(&self.config.object).map_err(|e| format!("`object`: {e}"))?;
        let mut ending = self.ending.subscribe();
        loop {
            let len = tokio::select! {
                len = stream.read_u32_le() => len,
                _ = ending.wait_for(|ending| *ending) => return Ok(()),
            };
            let len = match len {
                Ok(len) => len as usize,
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            if len > object.len() {
                return Err(format!("an object of {len} bytes; the longest has {}", object.len()).into());
            }
            // Waits while all buffers of this size are in use, so the pool limits the memory of all
            // connections. Each task takes only one buffer at a time: tasks that hold one buffer and wait
            // for another one can deadlock. A hung device keeps its buffers, so the wait is limited.
            let limit = self.config.queue.queue.stall_timeout;
            let received = tokio::time::timeout(limit, store.pool.get(len)).await;
            let mut received = received.map_err(|_| format!("no buffer was free for {limit:?}"))??;
            stream.read_exact(&mut received).await?;
            let operands = (received, object.slice(..len));
            let copy = |(src, dst)| store.queue.copy_crc32c(src, dst, 0);
            let policy = RetryPolicy::new();
            match store.queue.retry_async(&policy, operands, copy, tokio::time::sleep).await {
                Ok((_, crc)) => stream.write_u32_le(crc).await?,
                Err(e) => {
                    let e = dma::Error::from(e);
                    if matches!(e.kind(), ErrorKind::TimedOut | ErrorKind::DeviceLost | ErrorKind::Closed) {
                        self.replace(&store).await?;
                    }
                    return Err(e.into());
                }
            }
        }
    }

    /// Opens the engine again, unless another connection has done so since `failed` failed.
    async fn replace(&self, failed: &Store) -> Result<(), Failure> {
        let mut store = self.store.write().await;
        if !Arc::ptr_eq(&store.engine, &failed.engine) {
            return Ok(());
        }
        let queue = store.queue.clone();
        // The device may still write to the buffers of operations that it does not end, so they are leaked.
        let counters = spawn_blocking(move || queue.close(Duration::ZERO)).await?;
        tracing::error!(%counters, "the device has failed; opening the engine again");
        *store = Store::open(&self.config)?;
        Ok(())
    }

    /// Accepts connections until the server ends, and waits for them.
    async fn accept(self: Arc<Self>, listener: TcpListener) -> std::io::Result<()> {
        let (mut connections, mut ending) = (JoinSet::new(), self.ending.subscribe());
        loop {
            let (stream, peer) = tokio::select! {
                accepted = listener.accept() => accepted?,
                Some(_) = connections.join_next() => continue,
                _ = ending.wait_for(|ending| *ending) => break,
            };
            let server = Arc::clone(&self);
            connections.spawn(async move {
                if let Err(e) = server.serve(stream).await {
                    tracing::warn!(%peer, "{e}");
                }
            });
        }
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
        Ok(())
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
    let level = tracing_subscriber::filter::LevelFilter::INFO.into();
    let filter = tracing_subscriber::EnvFilter::builder().with_default_directive(level).from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let argument = std::env::args().nth(1);
    match run(argument.as_deref()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // An error in the configuration names the line or the key, and the remedy.
            tracing::error!("{e}");
            ExitCode::FAILURE
        }
    }
}

async fn run(argument: Option<&str>) -> Result<(), Failure> {
    let (path, text) = match argument {
        Some("--schema") => {
            println!("{}", serde_json::to_string_pretty(&schemars::schema_for!(Config))?);
            return Ok(());
        }
        Some(path) => (path, std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?),
        None => ("server.toml", include_str!("server.toml").to_owned()),
    };
    let in_file = |e: &dyn Display| format!("{path}: {e}");
    // The recorder must exist before the first meter.
    let scrape = scrape::Scrape::new()?;
    let config: Config = toml::from_str(&text).map_err(|e| in_file(&e))?;
    let store = Store::open(&config).map_err(|e| in_file(&e))?;
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(config.listen).await.map_err(|e| in_file(&format!("`listen`: {e}")))?;
    let address = listener.local_addr()?;
    println!("{} serves at {address}", config.engine);
    if let Some(metrics) = config.metrics {
        let listener = TcpListener::bind(metrics).await.map_err(|e| in_file(&format!("`metrics`: {e}")))?;
        println!("metrics at http://{}/metrics", listener.local_addr()?);
        tokio::spawn(scrape.serve(listener));
    }
    let server = Arc::new(Server { config, store: RwLock::new(store), ending: watch::Sender::new(false) });
    let serving = tokio::spawn(Arc::clone(&server).accept(listener));
    if argument.is_some() {
        tokio::select! {
            _ = terminated.recv() => tracing::info!("SIGTERM: the server ends"),
            _ = interrupted.recv() => tracing::info!("SIGINT: the server ends"),
        }
    } else {
        let clients: Vec<_> = (1..=3).map(|seed| tokio::spawn(client(address, seed))).collect();
        for client in clients {
            println!("{} bytes stored", client.await??);
        }
    }
    server.ending.send_replace(true);
    serving.await??;
    let queue = server.store.read().await.queue.clone();
    let counters = spawn_blocking(move || queue.close(GRACE)).await?;
    tracing::info!(%counters, "the queue is closed");
    Ok(())
}
