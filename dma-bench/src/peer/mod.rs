//! Memory of another process: a child process, or a `dma-bench serve` on this or another machine. The other
//! process allocates and exports the memory. On request it reads and writes the memory through its own
//! mapping, so that bytes can be verified.
//!
//! Requests and answers are encrypted messages of `dma-handshake` over TCP. Numbers are little-endian.
//!
//! ```text
//! o version:u16 len:u64     open memory; the answer is the export's descriptor, or empty for length 0
//! r at:u64 len:u32          read; the answer is the bytes
//! w at:u64 bytes            write; the answer is empty
//! ```
//!
//! An answer is `+` and the content, or `-`, the kind of the error as a byte, and the error's text.

mod exporter;
mod request;
pub(crate) mod serve;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dma::process::{ExchangeLimit, LimitedSocket};
use dma::{Error, ErrorKind, ExportDescriptor, NumaNodes, Result};
use dma_handshake::{Keys, Protocol, Receiving, Secret, Sending};

pub(crate) use self::exporter::{MemoryLimit, export_memory};
use self::request::{ERROR_KINDS, MAX_MESSAGE, MAX_PIECE, Request, VERSION};
use crate::interrupt;
use crate::plan::Address;
use crate::run::placement;

pub(crate) const PROTOCOL: Protocol =
    Protocol { name: *b"DBCHTCP", version: b'2', request_len: 0, reply_len: 0, program: "dma-bench" };

/// Time limit for connecting and for the proofs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a request and its answer, with all their bytes. Allocating much memory takes seconds, and a
/// message has at most 128 KiB.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
type Link = (Sending<Box<dyn Write + Send>>, Receiving<Box<dyn Read + Send>>);

/// Runs the child process: exports memory of `engine` on a NUMA node until the end of standard input.
pub(crate) fn serve_child(engine: &str, node: Option<u32>) -> std::result::Result<(), String> {
    if let Some(node) = node {
        placement::bind_memory(&NumaNodes::of_system(), node)?;
    }
    let engine = dma::open(engine).map_err(|e| e.to_string())?;
    let (to, from) = (io::stdout().lock(), io::stdin().lock());
    export_memory(&*engine, &MemoryLimit::new(u64::MAX), to, from, None, None, || {})
        .map_err(|e| format!("peer: {e}"))
}

/// The process that exports the memory, and the connection to it.
pub(crate) struct Process {
    /// `None` after an exchange has failed: an answer that comes late would be taken for the next one.
    link: Mutex<Option<Link>>,
    /// The limit of a request to another machine.
    limit: ExchangeLimit,
    /// The process, if this one started it.
    child: Option<Child>,
    name: String,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Process {
    /// Starts a process that exports memory of an engine on a NUMA node.
    pub(crate) fn start(engine: &str, node: Option<u32>) -> Result<Self> {
        let failed = |e: io::Error| Error::new(ErrorKind::Os, format!("cannot start the peer process: {e}"));
        // This path leads to the running program even if its file has been replaced.
        let mut child = Command::new("/proc/self/exe")
            .args(["peer", engine])
            .args(node.map(|node| format!("--numa={node}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let name = "the peer process, whose own message is on standard error".to_owned();
        Ok(Self::with(to, from, None, Some(child), name, ExchangeLimit::new(ANSWER_TIMEOUT)))
    }

    /// Connects to a `dma-bench serve`. Blocks for at most some seconds.
    pub(crate) fn connect(address: &Address) -> Result<Self> {
        let secret =
            Secret::read(&address.secret_file).map_err(|e| Error::new(ErrorKind::InvalidArgument, e))?;
        let at = &address.at;
        let (stream, keys) = call(at, &secret, CONNECT_TIMEOUT)?;
        let set_up = || {
            stream.set_nodelay(true)?;
            stream.try_clone()
        };
        let clone =
            set_up().map_err(|e| Error::new(ErrorKind::Os, format!("the connection to {at}: {e}")))?;
        let limit = ExchangeLimit::new(ANSWER_TIMEOUT);
        let [to, from] = [stream, clone].map(|stream| LimitedSocket::new(stream, limit.clone()));
        let process = Self::with(to, from, Some(keys), None, format!("the peer {at}"), limit);
        // This request fails if the other side has another version or too many peers.
        process.call(Request::Open { version: VERSION, len: 0 })?;
        Ok(process)
    }

    fn with(
        to: impl Write + Send + 'static,
        from: impl Read + Send + 'static,
        keys: Option<(Keys, Keys)>,
        child: Option<Child>,
        name: String,
        limit: ExchangeLimit,
    ) -> Self {
        let (sends, receives) = keys.unzip();
        let to = Sending::new(Box::new(to) as Box<dyn Write + Send>, sends);
        let from = Receiving::new(Box::new(from) as Box<dyn Read + Send>, receives, MAX_MESSAGE);
        Self { link: Mutex::new(Some((to, from))), limit, child, name }
    }

    /// Asks the process to allocate and export `len` bytes, which replace its previous memory. Returns the
    /// export descriptor.
    pub(crate) fn open(&self, len: usize) -> Result<ExportDescriptor> {
        ExportDescriptor::from_bytes(&self.call(Request::Open { version: VERSION, len: len as u64 })?)
    }

    pub(crate) fn read_at(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        for (piece, from) in bytes.chunks_mut(MAX_PIECE).zip((at..).step_by(MAX_PIECE)) {
            let answer = self.call(Request::Read { at: from as u64, len: piece.len() as u32 })?;
            if answer.len() != piece.len() {
                return Err(Error::new(
                    ErrorKind::Malformed,
                    format!("{}: the answer has a wrong length", self.name),
                ));
            }
            piece.copy_from_slice(&answer);
        }
        Ok(())
    }

    pub(crate) fn write_at(&self, at: usize, bytes: &[u8]) -> Result<()> {
        // The answer arrives when the bytes are in the memory.
        let pieces = bytes.chunks(MAX_PIECE).zip((at..).step_by(MAX_PIECE));
        pieces
            .map(|(bytes, at)| self.call(Request::Write { at: at as u64, bytes }))
            .try_for_each(|a| a.map(drop))
    }

    fn call(&self, request: Request<'_>) -> Result<Vec<u8>> {
        let mut answer = Vec::new();
        {
            let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((to, from)) = &mut *link else {
                return Err(Error::new(
                    ErrorKind::Closed,
                    format!("{}: the connection was given up after a failed request", self.name),
                ));
            };
            self.limit.restart();
            let exchanged = to.send(&request.encode()).and_then(|()| from.receive(&mut answer));
            if let Err(e) = exchanged {
                *link = None;
                return Err(self.lost(&e));
            }
        }
        match answer.first() {
            Some(b'+') => {
                answer.remove(0);
                Ok(answer)
            }
            Some(b'-') if answer.len() > 1 => {
                let kind = ERROR_KINDS.get(usize::from(answer[1])).copied().unwrap_or(ErrorKind::Os);
                let text = String::from_utf8_lossy(&answer[2..]).replace(char::is_control, "?");
                Err(Error::new(kind, format!("{}: {text}", self.name)))
            }
            _ => Err(Error::new(
                ErrorKind::Malformed,
                format!("{}: the answer does not follow the protocol", self.name),
            )),
        }
    }

    fn lost(&self, e: &io::Error) -> Error {
        let name = &self.name;
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::new(
                ErrorKind::TimedOut,
                format!("{name}: no answer for {} s", ANSWER_TIMEOUT.as_secs()),
            ),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Error::new(
                    ErrorKind::Closed,
                    format!("{name}: the process has ended, or the connection is lost"),
                )
            }
            _ => Error::new(ErrorKind::Os, format!("{name}: {e}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The process ends at the end of its input. The kill ends it in any case.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Connects and proves knowledge of the secret, within `timeout`. Reconnects if the other side closes the
/// connection before it has answered.
fn call(at: &str, secret: &Secret, timeout: Duration) -> Result<(TcpStream, (Keys, Keys))> {
    let began = Instant::now();
    let is_over = || began.elapsed() >= timeout || interrupt::stopped();
    let start = "start `dma-bench serve` there, with the same port and --secret-file";
    loop {
        let mut stream = connect(at).map_err(|e| {
            let kind = match e.kind() {
                io::ErrorKind::ConnectionRefused => ErrorKind::NotFound,
                io::ErrorKind::TimedOut => ErrorKind::TimedOut,
                _ => ErrorKind::Os,
            };
            Error::new(kind, format!("cannot connect to the peer {at}: {e}")).with_hint(start)
        })?;
        let e = match dma_handshake::call(&mut stream, secret, &PROTOCOL, is_over) {
            Ok(keys) => return Ok((stream, keys)),
            Err(e) => e,
        };
        let of_peer = |kind, what: &str| Error::new(kind, format!("the peer {at} {what}"));
        match e.kind() {
            io::ErrorKind::ConnectionRefused => {
                return Err(of_peer(ErrorKind::PermissionDenied, "has another secret")
                    .with_hint("use the same --secret-file on both sides"));
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ResourceBusy
                if !is_over() =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            io::ErrorKind::ResourceBusy => {
                return Err(of_peer(ErrorKind::OutOfResources, &e.to_string())
                    .with_hint("see there which program opens connections to that port"));
            }
            _ if is_over() => {
                return Err(
                    of_peer(ErrorKind::TimedOut, "does not prove that it knows the secret").with_hint(start)
                );
            }
            io::ErrorKind::Unsupported => {
                return Err(of_peer(ErrorKind::VersionMismatch, &format!("is of another release: {e}")));
            }
            _ => {
                return Err(of_peer(ErrorKind::PermissionDenied, &format!("is not a dma-bench serve: {e}"))
                    .with_hint(start));
            }
        }
    }
}

fn connect(at: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in at.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A peer that sends an answer byte by byte is given up after the limit of the whole answer.
    #[test]
    fn a_slow_peer_is_given_up() {
        const LEN: u32 = 10_000;
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let limit = ExchangeLimit::new(Duration::from_millis(100));
        let [to, from] = [ours.try_clone().expect("a socket"), ours]
            .map(|socket| LimitedSocket::new(socket, limit.clone()));
        let process = Process::with(to, from, None, None, "the peer".to_owned(), limit);
        let (ends, ended) = std::sync::mpsc::channel::<()>();
        let slow = std::thread::spawn(move || {
            theirs.write_all(&LEN.to_le_bytes()).expect("room");
            for _ in 0..LEN {
                let _ = ended.recv_timeout(Duration::from_millis(10));
                if theirs.write_all(b"+").is_err() {
                    break;
                }
            }
        });
        let error = process.read_at(0, &mut [0; 64]).expect_err("too slow");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let error = process.read_at(0, &mut [0; 64]).expect_err("the first answer may still come");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        drop((process, ends));
        slow.join().expect("no panic");
    }

    #[test]
    fn a_silent_peer_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        let failed = call(&at, &Secret::new([1; 16], [2; 32]), Duration::from_millis(10))
            .map(|_| ())
            .expect_err("nobody answers");
        assert_eq!(failed.kind(), ErrorKind::TimedOut, "{failed}");
        assert!(failed.to_string().contains("does not prove that it knows the secret"), "{failed}");
    }
}
