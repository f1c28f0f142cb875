//! The service thread, which a process has while it exports or imports memory.
//!
//! The thread answers importers. It also detects the end of a peer, because the kernel closes a process's
//! sockets after the process's last thread has stopped. Otherwise the service thread sleeps. It never blocks
//! on a peer, and exits after the last export and import are dropped.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{hint, process, thread};

use dma_core::{deferred_log, with_deferred_log};
use dma_handshake::{Origin, Pending};
use dma_process::{ForkLock, ForkMark, WakePipe, above_stdio, lock, with_signals_blocked};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::futex;

use super::blob::Token;
use super::lease::{self, GONE, REVOKED};
use super::mapping::Mapping;
use super::memory::control_page;
use super::peercred::{Peer, peer};
use super::wire::{Granted, HELLO_LEN, Reply, parse_hello};
use super::{MAX_IMPORTS, RemoteError};

/// Maximum number of connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Pause before the thread accepts importers again, after this process has run out of file descriptors.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Maximum sleep while leases exist. The end of a lease wakes the sleeper; the limit is for peers that
/// violate the protocol.
const NAP: Duration = Duration::from_millis(10);

const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

static CURRENT: ForkLock<Weak<Service>> = ForkLock::new(Weak::new);

/// This process's service. Each export and import holds a handle. The service ends when the last handle is
/// dropped.
pub(super) struct Service {
    shared: Arc<SharedService>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
    process: ForkMark,
}

struct SharedService {
    epoll: OwnedFd,
    wake: WakePipe,
    stop: AtomicBool,
    socket: [u8; 16],
    state: Mutex<ServiceState>,
}

#[derive(Default)]
struct ServiceState {
    listener: Option<OwnedFd>,
    /// A descriptor to give up when file descriptors are exhausted, so that an importer can still be refused.
    reserve: Option<OwnedFd>,
    /// Set while the listener is ignored because file descriptors are exhausted.
    accept_again_at: Option<Instant>,
    /// Importers that have not sent their request yet.
    pending: Pending<Caller>,
    exports: Exports,
    /// Exporters from which this process imports, by key.
    watches: HashMap<u64, Watch>,
    connections_so_far: u64,
}

/// An importer that has not sent its request yet.
struct Caller {
    key: u64,
    socket: OwnedFd,
    peer: Peer,
}

/// The exports of this process, and their importers.
#[derive(Default)]
struct Exports {
    by_token: HashMap<Token, Exported>,
    /// Importers with a granted export, by key.
    importers: HashMap<u64, Importer>,
}

/// An export, and the keys of its importers.
struct Exported {
    granted: Granted,
    file: OwnedFd,
    importers: Vec<u64>,
}

struct Importer {
    _socket: OwnedFd,
    token: Token,
    link: Arc<Link>,
}

/// The connection to an exporter, and the page with the shared lease word.
struct Watch {
    socket: OwnedFd,
    control: Arc<Mapping>,
}

/// The exporter's state for one importer.
pub(super) struct Link {
    key: u64,
    /// The importing process.
    pub(super) pid: u32,
    control: Mapping,
    dead: AtomicBool,
}

impl Link {
    /// Waits until the importer holds no lease or has ended. Returns false at `deadline`.
    pub(super) fn wait_until_idle(&self, deadline: Option<Instant>) -> bool {
        let word = self.control.word();
        // Spin first, because most leases end before a sleep would begin.
        let mut spins = 200;
        loop {
            let (leases, seen) = lease::leases(word);
            if leases == 0 || self.dead.load(Ordering::Acquire) {
                return true;
            }
            if spins > 0 {
                spins -= 1;
                hint::spin_loop();
                continue;
            }
            let left = deadline.map_or(NAP, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            // The result is ignored, because the loop checks again after any wake-up.
            let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timespec(left.min(NAP))));
        }
    }

    /// Handles the end of the importer: its leases no longer count, and waiters are woken.
    fn died(&self) {
        if lease::leases(self.control.word()).0 != 0 {
            let pid = self.pid;
            deferred_log!(
                warn,
                pid,
                "an importer ended while it held a lease: its last copy may be incomplete"
            );
        }
        self.dead.store(true, Ordering::Release);
        // Change the word, because a revocation may be about to sleep on it.
        close(self.control.word(), GONE);
    }
}

/// Refuses further leases of `word`, and wakes its waiters.
fn close(word: &AtomicU32, reason: u32) {
    lease::close(word, reason);
    wake(word);
}

/// Wakes the waiters for a change of `word`, in all processes.
pub(super) fn wake(word: &AtomicU32) {
    // This fails only for invalid addresses.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

impl Service {
    /// Returns the service of this process. Starts it if necessary.
    pub(super) fn get() -> Result<Arc<Self>, RemoteError> {
        let mut current = CURRENT.lock();
        if let Some(service) = current.upgrade()
            && service.is_ours()
        {
            return Ok(service);
        }
        let service = Arc::new(Self::start()?);
        *current = Arc::downgrade(&service);
        Ok(service)
    }

    /// Starts the service thread.
    fn start() -> Result<Self, RemoteError> {
        let failed = |operation| move |errno| RemoteError::os(operation, errno);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map(above_stdio);
        let wake = WakePipe::new();
        let shared = Arc::new(SharedService {
            epoll: epoll.map_err(failed("starting the thread that shares memory (epoll_create1)"))?,
            wake: wake.map_err(failed("starting the thread that shares memory (pipe2)"))?,
            stop: AtomicBool::new(false),
            socket: random()?,
            state: Mutex::default(),
        });
        let added = shared.add(&shared.wake, WAKE, epoll::EventFlags::IN);
        added.map_err(failed("starting the thread that shares memory (epoll_ctl)"))?;
        // In a sandbox that forbids the thread's waits, exports fail, instead of imports that find no answer.
        let waited = epoll::wait(
            &shared.epoll,
            spare_capacity(&mut Vec::with_capacity(1)),
            Some(&timespec(Duration::ZERO)),
        );
        if let Err(errno) = waited
            && errno != Errno::INTR
        {
            return Err(failed("starting the thread that shares memory (epoll_wait)")(errno));
        }
        let thread = with_signals_blocked(|| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("dma-remote".into()).spawn(move || shared.serve())
        });
        let thread = thread.map_err(|source| RemoteError::NoThread { source })?;
        Ok(Self { shared, thread: Some(thread), pid: process::id(), process: ForkMark::new() })
    }

    /// Returns false in a forked child, which has the handle but not the thread.
    pub(super) fn is_ours(&self) -> bool {
        !self.process.is_child()
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the name of the socket on which this process answers importers.
    pub(super) fn socket(&self) -> [u8; 16] {
        self.shared.socket
    }

    /// Starts to grant `granted`, a range of `file`, to importers that know `token`.
    pub(super) fn offer(&self, token: Token, granted: Granted, file: OwnedFd) -> Result<(), RemoteError> {
        let mut state = lock(&self.shared.state);
        if state.listener.is_none() {
            let failed = |operation| move |errno| RemoteError::os(operation, errno);
            let listener = listen_on(&self.shared.socket)
                .map_err(failed("listening for importers (socket, bind, listen)"))?;
            // In a sandbox that forbids the call, the export fails, instead of imports that find no answer.
            // No importer knows the socket yet, so none is waiting.
            match accept_with(&listener, SocketFlags::CLOEXEC) {
                Err(errno) if !matches!(errno, Errno::AGAIN | Errno::INTR | Errno::MFILE | Errno::NFILE) => {
                    return Err(failed("listening for importers (accept4)")(errno));
                }
                _ => {}
            }
            let added = self.shared.add(&listener, LISTENER, epoll::EventFlags::IN);
            added.map_err(failed("listening for importers (epoll_ctl)"))?;
            state.reserve = reserve(&listener);
            state.listener = Some(listener);
        }
        state.exports.by_token.insert(token, Exported { granted, file, importers: Vec::new() });
        Ok(())
    }

    /// Withdraws the export of `token`, and refuses new leases. Returns the importers, which may still hold
    /// leases.
    pub(super) fn withdraw(&self, token: Token) -> Vec<Arc<Link>> {
        let Exports { by_token, importers } = &mut lock(&self.shared.state).exports;
        let Some(exported) = by_token.remove(&token) else { return Vec::new() };
        let links = exported.importers.iter().filter_map(|key| importers.get(key));
        let links: Vec<_> = links.map(|importer| Arc::clone(&importer.link)).collect();
        for link in &links {
            close(link.control.word(), REVOKED);
        }
        links
    }

    /// Closes the connection to an importer that has no lease and can get no more leases.
    pub(super) fn hang_up(&self, link: &Link) {
        // Drop the importer without the lock, because unmapping its page may log.
        let importer = lock(&self.shared.state).exports.importers.remove(&link.key);
        drop(importer);
    }

    /// Watches the exporter at the other end of `socket`: closes the word in `control` after the exporter has
    /// ended. Returns the key for [`unwatch`](Self::unwatch).
    pub(super) fn watch(&self, socket: OwnedFd, control: Arc<Mapping>) -> Result<u64, RemoteError> {
        let mut state = lock(&self.shared.state);
        let key = state.next_key();
        self.shared
            .add(&socket, key, epoll::EventFlags::empty())
            .map_err(|errno| RemoteError::os("watching the exporting process (epoll_ctl)", errno))?;
        state.watches.insert(key, Watch { socket, control });
        Ok(key)
    }

    /// Ends a [`watch`](Self::watch), and closes the connection to the exporter.
    pub(super) fn unwatch(&self, key: u64) {
        let watch = lock(&self.shared.state).watches.remove(&key);
        drop(watch);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.is_ours() {
            // A forked child does not have the thread, and joining it would never return.
            std::mem::forget(thread);
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        if !self.shared.wake.wake() {
            dma_core::guarded_log!(
                error,
                "the program has closed the descriptors of the thread that shares memory"
            );
            return;
        }
        if thread.join().is_err() {
            dma_core::guarded_log!(error, "the thread that shares memory had panicked");
        }
    }
}

impl SharedService {
    /// Adds an event source. The kernel also reports the end of a connection, even if `events` is empty.
    fn add(&self, source: impl AsFd, key: u64, events: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(key), events)
    }

    /// The main loop of the service thread.
    fn serve(&self) {
        let mut events = Vec::with_capacity(32);
        while !self.stop.load(Ordering::Acquire) {
            let timeout = lock(&self.state).next_deadline().map(|deadline| {
                // Add a millisecond, because the kernel rounds down.
                timespec(deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
            });
            events.clear();
            if let Err(errno) = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref())
                && errno != Errno::INTR
            {
                dma_core::guarded_log!(error, %errno, "cannot wait for importers and exporters");
                // Retrying is the only option, so pause to avoid a busy loop.
                thread::sleep(ACCEPT_AGAIN_AFTER);
            }
            // A log subscriber may export memory, so it runs after the lock is released.
            with_deferred_log(|| {
                let mut state = lock(&self.state);
                for event in &events {
                    match event.data.u64() {
                        WAKE => {}
                        LISTENER => state.accept(self),
                        key => state.on_event(self, key),
                    }
                }
                // Otherwise the request of a connection that expires may still be in the kernel.
                if events.len() < events.capacity() {
                    state.on_time(self);
                }
            });
        }
    }
}

impl ServiceState {
    fn next_key(&mut self) -> u64 {
        self.connections_so_far += 1;
        FIRST_CONNECTION + self.connections_so_far
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.pending.next_deadline().into_iter().chain(self.accept_again_at).min()
    }

    /// Handles deadlines that have passed.
    fn on_time(&mut self, shared: &SharedService) {
        for caller in self.pending.expire() {
            deferred_log!(
                debug,
                pid = caller.peer.pid,
                "closing the connection of a process that sent no request"
            );
            caller.refuse(Reply::Busy);
        }
        if self.accept_again_at.is_some_and(|at| at <= Instant::now()) {
            self.accept_again_at = None;
            if self.reserve.is_none() {
                self.reserve = self.listener.as_ref().and_then(reserve);
            }
            self.listen_for(shared, epoll::EventFlags::IN);
        }
    }

    /// Sets the events of the listener for which the thread waits.
    fn listen_for(&self, shared: &SharedService, events: epoll::EventFlags) {
        if let Some(listener) = &self.listener
            && let Err(errno) =
                epoll::modify(&shared.epoll, listener, epoll::EventData::new_u64(LISTENER), events)
        {
            deferred_log!(error, %errno, "cannot change the events for which the thread that shares memory waits");
        }
    }

    /// Accepts connections of importers.
    fn accept(&mut self, shared: &SharedService) {
        // The limit is safe, because the kernel reports remaining connections again.
        for _ in 0..16 {
            let Some(listener) = &self.listener else { return };
            let accepted = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            let socket = match accepted {
                Ok(socket) => above_stdio(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno @ (Errno::MFILE | Errno::NFILE)) if self.reserve.take().is_some() => {
                    // Another thread may have taken the descriptor.
                    if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC) {
                        deferred_log!(warn, %errno, "cannot answer an importer; `ulimit -n` may be too low");
                        let _ = send(&socket, Reply::Os(errno.raw_os_error()), &[]);
                    }
                    self.reserve = reserve(listener);
                    continue;
                }
                Err(errno) => {
                    deferred_log!(warn, %errno, "cannot answer an importer now, will try again; `ulimit -n` may be too low");
                    self.listen_for(shared, epoll::EventFlags::empty());
                    self.accept_again_at = Some(Instant::now() + ACCEPT_AGAIN_AFTER);
                    return;
                }
            };
            let key = self.next_key();
            let watched = peer(socket.as_fd())
                .and_then(|peer| shared.add(&socket, key, epoll::EventFlags::IN).map(|()| peer));
            match watched {
                Ok(peer) => {
                    if let Some(evicted) =
                        self.pending.add(Origin::User(peer.uid), Caller { key, socket, peer })
                    {
                        evicted.refuse(Reply::Busy);
                    }
                }
                Err(errno) => deferred_log!(warn, %errno, "cannot answer an importer"),
            }
        }
    }

    /// Handles an event of a connection: a request, or the end of an importer or exporter. Events of
    /// connections that this process has closed are ignored.
    fn on_event(&mut self, shared: &SharedService, key: u64) {
        if let Some(watch) = self.watches.get(&key) {
            close(watch.control.word(), GONE);
            // Otherwise the kernel would report the event repeatedly. The import closes the socket when it
            // is dropped.
            let _ = epoll::delete(&shared.epoll, &watch.socket);
        } else if !self.exports.importer_ended(key) {
            let exports = &mut self.exports;
            self.pending.filter_map(|caller| {
                if caller.key == key { exports.answer(shared, caller) } else { Some(caller) }
            });
        }
    }
}

/// Returns a descriptor that only occupies its number, if one is free.
fn reserve(listener: &OwnedFd) -> Option<OwnedFd> {
    fcntl_dupfd_cloexec(listener, 0).map(above_stdio).ok()
}

impl Caller {
    /// Answers with a refusal, and closes the connection.
    fn refuse(self, reply: Reply) {
        // If sending fails, the importer detects the end of the connection.
        let _ = send(&self.socket, reply, &[]);
    }
}

impl Exports {
    /// Removes an importer whose connection has ended. Returns false if no importer has this key.
    fn importer_ended(&mut self, key: u64) -> bool {
        let Some(Importer { token, link, .. }) = self.importers.remove(&key) else { return false };
        link.died();
        if let Some(exported) = self.by_token.get_mut(&token) {
            exported.importers.retain(|&other| other != key);
        }
        true
    }

    /// Answers a request. Returns the caller if it has sent no request yet.
    fn answer(&mut self, shared: &SharedService, caller: Caller) -> Option<Caller> {
        let mut hello = [0; HELLO_LEN + 1];
        let token = match recv(&caller.socket, &mut hello, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return None,
            Ok((len, _)) => parse_hello(&hello[..len.min(hello.len())]),
            Err(Errno::AGAIN | Errno::INTR) => return Some(caller),
            Err(_) => return None,
        };
        let own = rustix::process::geteuid().as_raw();
        let peer = caller.peer;
        let Some(token) = token.filter(|_| may_share(peer.uid, own)) else {
            if may_share(peer.uid, own) {
                caller.refuse(Reply::BadHello);
            } else {
                deferred_log!(warn, pid = peer.pid, uid = peer.uid, own, "refused memory to another user");
                caller.refuse(Reply::ForeignUser);
            }
            return None;
        };
        match self.grant(shared, &caller, token) {
            Ok((link, imports)) => {
                deferred_log!(debug, pid = peer.pid, imports, "granted an import");
                self.importers.insert(caller.key, Importer { _socket: caller.socket, token, link });
            }
            Err(refused) => caller.refuse(refused),
        }
        None
    }

    /// Grants the export to a caller. Returns the caller's link, and the number of imports of the export.
    fn grant(
        &mut self,
        shared: &SharedService,
        caller: &Caller,
        token: Token,
    ) -> Result<(Arc<Link>, usize), Reply> {
        let Caller { key, socket, peer } = caller;
        let exported = self.by_token.get_mut(&token).ok_or(Reply::Unknown)?;
        if exported.importers.len() >= MAX_IMPORTS as usize {
            return Err(Reply::Full);
        }
        let refused = |errno: Errno| Reply::Os(errno.raw_os_error());
        let (control_file, control) = control_page().map_err(refused)?;
        // From now on, only the end of this importer is of interest, which the kernel always reports.
        let data = epoll::EventData::new_u64(*key);
        epoll::modify(&shared.epoll, socket, data, epoll::EventFlags::empty()).map_err(refused)?;
        let files = [exported.file.as_fd(), control_file.as_fd()];
        send(socket, Reply::Granted(exported.granted), &files).map_err(refused)?;
        exported.importers.push(*key);
        let link = Link { key: *key, pid: peer.pid, control, dead: AtomicBool::new(false) };
        Ok((Arc::new(link), exported.importers.len()))
    }
}

/// Sends without blocking. The buffer of a new connection has space for one message.
pub(super) fn send(socket: &OwnedFd, reply: Reply, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let reply = reply.encode();
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&reply)], &mut ancillary, flags)).map(|_| ())
}

/// Returns true if a process of user `peer` may share memory with one of user `own`.
pub(super) fn may_share(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// Returns unpredictable bytes.
pub(super) fn random() -> Result<[u8; 16], RemoteError> {
    let mut bytes = [0; 16];
    let len = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))
        .map_err(|errno| RemoteError::os("asking for random bytes (getrandom)", errno))?;
    // After the kernel has started up, a request of up to 256 bytes is never cut short (getrandom(2)).
    if len == bytes.len() { Ok(bytes) } else { Err(RemoteError::os("asking for random bytes", Errno::IO)) }
}

/// Returns the abstract address of the socket called `socket`.
pub(super) fn address(socket: &[u8; 16]) -> Result<SocketAddrUnix, Errno> {
    let name = format!("dma-remote-{:032x}", u128::from_be_bytes(*socket));
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Creates a socket of the type that both sides use. It keeps message boundaries, and reports the end of the
/// peer.
pub(super) fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
        .map(above_stdio)
}

/// Creates the listening socket of the name `socket`.
pub(super) fn listen_on(socket: &[u8; 16]) -> Result<OwnedFd, Errno> {
    let listener = new_socket(SocketFlags::NONBLOCK)?;
    bind(&listener, &address(socket)?)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn timespec(duration: Duration) -> Timespec {
    // All durations in this module are at most some seconds, so they fit the fields.
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
