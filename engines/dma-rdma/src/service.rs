//! The exporter's thread. The thread answers importers, and makes and keeps the queue pairs that serve them.

use std::collections::HashMap;
use std::io::{ErrorKind as IoKind, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dma_core::{Error, ErrorKind, Result};
use dma_handshake::{Answering, Id, Pending, Requested, Step};
use dma_process::{ForkMark, WakePipe, above_stdio, lock, with_signals_blocked};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use crate::device::Device;
use crate::error::error;
use crate::granted::Granted;
use crate::queue_pair::QueuePair;
use crate::wire::{PROTOCOL, Reply, Request};

/// Maximum number of served connections.
const MAX_SERVED: usize = 4096;
/// Maximum number of connections that are accepted before the next reading of requests.
const ACCEPTS: usize = 16;
/// Maximum number of connections in the kernel's backlog. If it is full, the kernel drops packets, and
/// importers need more than a second to connect.
const BACKLOG: i32 = 1024;
/// Pause when this process has no file descriptor left for another peer.
const PAUSE: Duration = Duration::from_millis(100);
/// TCP keep-alive: idle time, interval and number of probes after which a peer's host is presumed down.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// An engine's service. Dropping this value ends the service's thread and destroys the queue pairs of peers.
#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<SharedExports>,
    addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
    process: ForkMark,
}

#[derive(Debug)]
struct SharedExports {
    exports: Mutex<HashMap<Id, Arc<Granted>>>,
    wake: WakePipe,
    stop: AtomicBool,
}

/// The connection of a peer, and its queue pair, which is closed with the connection.
struct Served {
    stream: TcpStream,
    _pair: QueuePair,
}

/// The next step for a caller after some bytes have been read.
enum Next {
    /// More bytes are needed.
    Wait(Answering),
    Serve(Served),
    Close,
}

/// Returns the address of the port's GID, if the service can listen on it.
fn address_of(device: &Device) -> Option<IpAddr> {
    let (_, gid) = device.port.gid?;
    let ip = Ipv6Addr::from(gid.raw);
    let usable = !ip.is_unicast_link_local() && !ip.is_unspecified() && device.port.is_ethernet();
    usable.then(|| ip.to_canonical())
}

/// Returns the address on which the service of a device listens, and the address to which peers connect.
/// `None` if neither the options nor the port's GID contain an address.
pub(crate) fn place(device: &Device) -> Option<(SocketAddr, IpAddr)> {
    let of_port = address_of(device);
    match device.options.listen {
        Some(listen) if listen.ip().is_unspecified() => Some((listen, of_port?)),
        Some(listen) => Some((listen, listen.ip())),
        None => of_port.map(|ip| (SocketAddr::new(ip, 0), ip)),
    }
}

impl Service {
    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// `Unsupported`: the device has no address. `Os`, `PermissionDenied`, `InUse`: the system refuses the
    /// address.
    pub(crate) fn start(device: &Device) -> Result<Self> {
        let (listen, reached) = place(device).ok_or_else(no_address)?;
        let failed = |source: std::io::Error| {
            Error::from(source)
                .with_message(format!("the service cannot listen for importers at {listen}"))
                .with_backend(crate::error::NAME)
                .with_hint("choose a free port and an address of this host with the option `listen`")
        };
        let listener = TcpListener::bind(listen).map(above_stdio).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        rustix::net::listen(&listener, BACKLOG).map_err(|e| failed(e.into()))?;
        let addr = SocketAddr::new(reached, listener.local_addr().map_err(failed)?.port());
        let wake = WakePipe::new().map_err(|e| failed(e.into()))?;
        let shared =
            Arc::new(SharedExports { exports: Mutex::default(), wake, stop: AtomicBool::new(false) });
        let thread = with_signals_blocked(|| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("dma-rdma-service".into()).spawn(move || shared.serve(&listener))
        });
        Ok(Self { shared, addr, thread: Some(thread.map_err(failed)?), process: ForkMark::new() })
    }

    /// Returns the address to which peers connect.
    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Grants memory to peers that know the grant's secret.
    pub(crate) fn offer(&self, granted: Granted) {
        lock(&self.shared.exports).insert(*granted.secret.id(), Arc::new(granted));
    }

    /// Ends a grant.
    pub(crate) fn withdraw(&self, id: &Id) {
        lock(&self.shared.exports).remove(id);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.process.is_child() {
            // A forked child does not have the thread, so it cannot be joined.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        if !self.shared.wake.wake() {
            dma_core::guarded_log!(
                error,
                "the program has closed the descriptors of the thread that serves importers"
            );
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            dma_core::guarded_log!(error, "the thread that serves importers had panicked");
        }
    }
}

/// Returns the error of an engine without an address to listen on.
pub(crate) fn no_address() -> Error {
    error(ErrorKind::Unsupported, "the port's GID is not an address at which importers could reach this host")
        .with_hint("set an address with the option `listen`, such as rdma:mlx5_0,listen=10.0.0.1:0")
}

impl SharedExports {
    fn serve(&self, listener: &TcpListener) {
        let (mut pending, mut served) = (Pending::default(), Vec::<Served>::new());
        while !self.stop.load(Ordering::Acquire) {
            let timeout = pending.next_deadline().map(|until| {
                // A millisecond is added, because the kernel rounds down.
                timespec(until.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
            });
            let callers = pending.iter().map(|caller: &Answering| caller.as_fd());
            let files = [self.wake.as_fd(), listener.as_fd()].into_iter();
            let files = files.chain(callers).chain(served.iter().map(|served| served.stream.as_fd()));
            let mut files: Vec<_> = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
            if let Err(errno) = poll(&mut files, timeout.as_ref())
                && errno != rustix::io::Errno::INTR
            {
                dma_core::guarded_log!(error, %errno, "cannot wait for importers");
                // The pause avoids spinning, because retrying is the only option.
                std::thread::sleep(PAUSE);
            }
            let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
            let mut ready = ready.into_iter().skip(1);
            let is_called = ready.next() == Some(true);
            let mut new = Vec::new();
            pending.filter_map(|caller| {
                if ready.next() != Some(true) {
                    return Some(caller);
                }
                match self.advance(caller) {
                    Next::Wait(caller) => return Some(caller),
                    Next::Serve(served) => new.push(served),
                    Next::Close => {}
                }
                None
            });
            served.retain_mut(|served| ready.next() != Some(true) || served.is_connected());
            served.extend(new);
            pending.expire().into_iter().for_each(refuse);
            if is_called {
                accept(listener, &mut pending, served.len());
            }
        }
    }

    /// Reads from a connection, and answers the request once it is complete.
    fn advance(&self, caller: Answering) -> Next {
        let step = caller.step(&PROTOCOL, |id| lock(&self.exports).get(id).map(|granted| granted.secret));
        match step {
            Ok(Step::Pending(caller)) => Next::Wait(caller),
            Ok(Step::Requested(requested)) => self.answer(requested),
            Err(error) if error.kind() == IoKind::PermissionDenied => {
                dma_core::guarded_log!(warn, %error, "an importer is refused");
                Next::Close
            }
            Err(error) => {
                dma_core::guarded_log!(debug, %error, "a connection is closed");
                Next::Close
            }
        }
    }

    /// Answers a request, and makes the queue pair that the request asks for.
    fn answer(&self, requested: Requested) -> Next {
        // An importer whose export was revoked meanwhile connects again, and is refused.
        let granted = lock(&self.exports).get(&requested.id).map(Arc::clone);
        let request = requested.request.first_chunk().and_then(Request::decode);
        let Some((granted, request)) = granted.zip(request) else { return Next::Close };
        let (reply, pair) = match request.0.map(|peer| granted.serve(&peer)) {
            None => (Reply::Granted(granted.grant, None), None),
            Some(Ok((pair, end))) => (Reply::Granted(granted.grant, Some(end)), Some(pair)),
            Some(Err(error)) => {
                dma_core::guarded_log!(warn, %error, "an importer cannot be served");
                (Reply::Exhausted, None)
            }
        };
        match (requested.reply(&reply.encode()), pair) {
            (Ok((stream, _)), Some(pair)) => Next::Serve(Served { stream, _pair: pair }),
            _ => Next::Close,
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

impl Served {
    /// Returns false if the peer has closed the connection or sent more bytes, which no importer does.
    fn is_connected(&mut self) -> bool {
        let more = self.stream.read(&mut [0]);
        more.is_err_and(|e| matches!(e.kind(), IoKind::WouldBlock | IoKind::Interrupted))
    }
}

/// Reports to the peer that this service is busy, and closes the connection.
fn refuse(caller: Answering) {
    dma_core::guarded_log!(debug, "too many connections wait, so one is closed");
    caller.refuse_as_busy(&PROTOCOL);
}

/// Accepts waiting connections. The kernel reports the remaining ones again.
fn accept(listener: &TcpListener, pending: &mut Pending<Answering>, served: usize) {
    for _ in 0..ACCEPTS {
        let (stream, address) = match listener.accept() {
            Ok((stream, address)) => (above_stdio(stream), address),
            Err(e) if e.kind() == IoKind::WouldBlock => return,
            Err(e) if matches!(e.kind(), IoKind::Interrupted | IoKind::ConnectionAborted) => continue,
            Err(error) => {
                dma_core::guarded_log!(warn, %error, "cannot answer an importer now; raise `ulimit -n`?");
                std::thread::sleep(PAUSE);
                return;
            }
        };
        match set_up(&stream) {
            Ok(()) if served >= MAX_SERVED => refuse(Answering::new(stream)),
            Ok(()) => {
                if let Some(evicted) = pending.add(address.ip().into(), Answering::new(stream)) {
                    refuse(evicted);
                }
            }
            Err(error) => dma_core::guarded_log!(debug, %error, "a peer is turned away"),
        }
    }
}

/// Makes a connection non-blocking, and starts its keep-alive.
fn set_up(stream: &TcpStream) -> std::io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    stream.set_nonblocking(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, interval)?;
    sockopt::set_tcp_keepcnt(stream, count)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "forks")]
    fn a_forked_child_drops_the_service_of_its_parent() {
        let wake = WakePipe::new().expect("a pipe");
        let shared =
            Arc::new(SharedExports { exports: Mutex::default(), wake, stop: AtomicBool::new(false) });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let addr = listener.local_addr().expect("an address");
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serving.serve(&listener));
        let service = Service { shared, addr, thread: Some(thread), process: ForkMark::new() };
        // SAFETY: the child drops the service, which uses no lock of another thread, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the call only starts a timer, which ends a child that hangs.
            unsafe { libc::alarm(60) };
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(service)));
            // SAFETY: the call ends the child without destructors.
            unsafe { libc::_exit(dropped.is_err().into()) };
        }
        let mut status = 0;
        // SAFETY: the status is a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child's status");
        drop(service);
    }
}
