//! `dma-bench serve`: exports memory to `dma-bench run --peer` on other machines.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use dma::process::{ExchangeLimit, LimitedSocket, count};
use dma::{Capabilities, DmaEngine};
use dma_handshake::{Keys, Secret};

use super::{MemoryLimit, PROTOCOL, export_memory};
use crate::files::say;
use crate::interrupt;
use crate::plan::Refused;
use crate::units;

/// Number of connections beyond `--peers` that are accepted, only to answer that there are too
/// many.
const MAX_REFUSED_CONNECTIONS: usize = 8;
/// Time limit for a peer to receive an answer, with all its bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  dma-bench serve -e rdma:mlx5_0 --listen 0.0.0.0:4712 --secret-file key
  dma-bench run -e rdma:mlx5_0 --peer 10.0.0.2:4712 --secret-file key -o 64..1M -q 1,32

The first line is for the machine with the memory, and the second one for the machine that measures. Both need
engines of one kind, which can export and import memory between these machines. Make the secret once and copy it
to both: head -c 32 /dev/urandom > key; chmod 600 key. Messages are encrypted. A peer with the secret may read
and write the memory that is exported to it, and nothing else.";

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArguments {
    /// The engine whose memory is exported, by name.
    #[arg(short = 'e', long = "engine", value_name = "NAME")]
    pub engine: String,
    /// Address and port to listen on, such as 0.0.0.0:4712; port 0 selects a free port.
    #[arg(short = 'l', long, value_name = "HOST:PORT")]
    pub listen: String,
    /// A file with a shared secret of at least 16 bytes, the same on both sides.
    #[arg(long, value_name = "FILE")]
    pub secret_file: PathBuf,
    /// Maximum memory to export, for all peers together.
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = units::size)]
    pub memory: u64,
    /// Maximum number of connections of peers. A run has one connection for each engine and
    /// direction.
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub peers: u32,
    /// End after this time. Default: run until Ctrl-C.
    #[arg(long = "for", value_name = "SECONDS", value_parser = lifetime)]
    pub seconds: Option<Duration>,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let seconds = units::seconds(text)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if seconds > 0.0 && seconds <= 1e9 => Ok(time),
        _ => Err(format!("`{text}` is not a duration; give more than 0 and at most 1e9 seconds")),
    }
}

/// The connections of authenticated peers, indexed by their number.
type Peers = Mutex<HashMap<u64, TcpStream>>;

/// Serves until Ctrl-C or `--for`.
pub(crate) fn serve(arguments: &ServeArguments) -> Result<(), Refused> {
    let secret = Secret::read(&arguments.secret_file)?;
    let engine = dma::open(&arguments.engine)?;
    if !engine.info().capabilities.contains(Capabilities::EXPORT) {
        return Err(Refused::Unusable(format!(
            "{} cannot export memory here; `dma-bench list` shows the engines that can, and `dma-bench doctor` why others cannot",
            arguments.engine
        )));
    }
    let at = &arguments.listen;
    let listener = TcpListener::bind(at).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => {
            Refused::Unusable(format!("another program listens on {at}; choose another port"))
        }
        _ => Refused::Invalid(format!(
            "cannot listen on {at}: {e}; give an address of this machine and a port to --listen"
        )),
    })?;
    let bound = listener.local_addr().map_err(|e| Refused::Unusable(format!("{at}: {e}")))?;
    interrupt::install("stopping; peers are disconnected");
    // A failed write is ignored, because the message is only for information.
    let _ = writeln!(io::stdout(), "serving {} on {bound}; Ctrl-C ends", arguments.engine);
    let served = accept_all(arguments, &*engine, &listener, &secret).map_err(Refused::Unusable)?;
    say(format_args!("dma-bench: served {}", count(served, "connection", "connections")));
    Ok(())
}

/// Accepts connections until Ctrl-C or the time limit. Returns the number of authenticated connections.
fn accept_all(
    arguments: &ServeArguments,
    engine: &dyn DmaEngine,
    listener: &TcpListener,
    secret: &Secret,
) -> Result<u64, String> {
    let end = arguments.seconds.map(|time| Instant::now() + time);
    let is_over = || Ok(interrupt::stopped() || end.is_some_and(|end| Instant::now() >= end));
    let (peers, limit) = (Peers::default(), MemoryLimit::new(arguments.memory));
    let most = arguments.peers as usize;
    std::thread::scope(|scope| {
        let mut served = 0;
        let ended = loop {
            let failed = |e: io::Error| format!("cannot accept connections: {e}");
            let rejected = |e: &io::Error| {
                if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) {
                    say(format_args!("dma-bench: turned away a peer: {e}"));
                }
            };
            match dma_handshake::answer(listener, secret, &PROTOCOL, is_over, failed, rejected) {
                Ok(None) => break Ok(served),
                Err(e) => break Err(e),
                Ok(Some((stream, keys))) => {
                    let connected = locked(&peers).len();
                    let Ok(clone) = stream.try_clone() else { continue };
                    if connected >= most + MAX_REFUSED_CONNECTIONS {
                        continue;
                    }
                    served += 1;
                    let id = served;
                    locked(&peers).insert(id, clone);
                    let refusal = (connected >= most)
                        .then(|| format!("{most} connections are open, and --peers allows no more"));
                    let (peers, limit) = (&peers, &limit);
                    let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
                        one(engine, limit, &stream, keys, refusal.as_deref());
                        locked(peers).remove(&id);
                    });
                    if thread.is_err() {
                        locked(peers).remove(&id);
                    }
                }
            }
        };
        // Each peer's thread then reads the end of its connection, and revokes its exports.
        locked(&peers).values().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        ended
    })
}

fn locked(peers: &Peers) -> std::sync::MutexGuard<'_, HashMap<u64, TcpStream>> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exports memory to one peer.
fn one(
    engine: &dyn DmaEngine,
    limit: &MemoryLimit,
    stream: &TcpStream,
    keys: (Keys, Keys),
    refusal: Option<&str>,
) {
    let name = stream.peer_addr().map_or_else(|_| "a peer".to_owned(), |at| at.to_string());
    let set_up = || {
        stream.set_nodelay(true)?;
        // TCP keep-alive detects a peer's host that has crashed, because such a host sends nothing.
        rustix::net::sockopt::set_socket_keepalive(stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
        rustix::net::sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
        rustix::net::sockopt::set_tcp_keepcnt(stream, 6)?;
        let answers = ExchangeLimit::new(WRITE_TIMEOUT);
        let to = LimitedSocket::new(stream, answers.clone());
        export_memory(engine, limit, to, stream, Some(keys), refusal, || answers.restart())
    };
    if let Err(e) = set_up()
        && !interrupt::stopped()
    {
        say(format_args!("dma-bench: {name}: {e}"));
    }
}
