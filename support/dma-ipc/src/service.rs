//! The thread that a process has while it exports or imports memory.
//!
//! It answers importers, and notices the end of the process behind an export or import: the kernel closes a
//! process's sockets when its last thread has stopped. It sleeps otherwise, never waits for a peer, and ends
//! with the last export and import.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{hint, process, thread};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, retry_on_intr};
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

/// Time that a connected process has to send its request.
const HELLO_WITHIN: Duration = Duration::from_secs(2);
/// Most connections without a request. One more, and the oldest is closed.
const MAX_SILENT: usize = 64;
/// Pause when this process has no descriptor for another importer.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Longest sleep while leases exist. Their end wakes the sleeper; the limit is for peers that break the
/// protocol.
const NAP: Duration = Duration::from_millis(10);

const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

static CURRENT: Mutex<Weak<Service>> = Mutex::new(Weak::new());

/// This process's service. It ends when the last handle is dropped; exports and imports each hold one.
pub(super) struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

struct Shared {
    epoll: OwnedFd,
    wake: OwnedFd,
    stop: AtomicBool,
    socket: [u8; 16],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listener: Option<OwnedFd>,
    /// Set while the listener is ignored for lack of descriptors.
    accept_again_at: Option<Instant>,
    exports: HashMap<Token, Exported>,
    connections: HashMap<u64, Connection>,
    /// Connections without a request, oldest first. Some may have sent one since.
    silent: VecDeque<(u64, Instant)>,
    connections_so_far: u64,
}

/// An export and its importers.
struct Exported {
    granted: Granted,
    file: OwnedFd,
    links: Vec<u64>,
}

enum Connection {
    /// An importer that has not sent its request.
    Silent { socket: OwnedFd, peer: Peer },
    /// An importer with a granted export.
    Link { _socket: OwnedFd, token: Token, link: Arc<Link> },
    /// An exporter that this process imports from.
    Watch { socket: OwnedFd, control: Arc<Mapping> },
}

/// The exporter's state of one importer.
pub(super) struct Link {
    key: u64,
    /// The importing process.
    pub(super) pid: u32,
    control: Mapping,
    dead: AtomicBool,
}

impl Link {
    /// Waits until the importer holds no lease, or is gone. Returns false at `deadline`.
    pub(super) fn wait_until_idle(&self, deadline: Option<Instant>) -> bool {
        let word = self.control.word();
        // Most leases end before a sleep would have begun.
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
            // The loop checks again after any wake-up.
            let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timespec(left.min(NAP))));
        }
    }

    fn died(&self) {
        if lease::leases(self.control.word()).0 != 0 {
            tracing::warn!(
                pid = self.pid,
                "an importer left while it held a lease: its last copy may be half done"
            );
        }
        self.dead.store(true, Ordering::Release);
        // Changes the word on which a revocation may be about to sleep.
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
    // Fails for bad addresses only.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

impl Service {
    /// Returns the service of this process, started if there is none.
    pub(super) fn get() -> Result<Arc<Self>, RemoteError> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = current.upgrade()
            && service.is_ours()
        {
            return Ok(service);
        }
        let service = Arc::new(Self::start()?);
        *current = Arc::downgrade(&service);
        Ok(service)
    }

    fn start() -> Result<Self, RemoteError> {
        let failed = |errno| RemoteError::os("starting the thread that shares memory", errno);
        let shared = Arc::new(Shared {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?,
            stop: AtomicBool::new(false),
            socket: random()?,
            state: Mutex::default(),
        });
        shared.add(&shared.wake, WAKE, epoll::EventFlags::IN).map_err(failed)?;
        let thread = thread::Builder::new().name("dma-remote".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.serve()
        });
        let thread = thread.map_err(|source| RemoteError::NoThread { source })?;
        Ok(Self { shared, thread: Some(thread), pid: process::id() })
    }

    /// Returns false in a forked child, which has the handle but not the thread.
    pub(super) fn is_ours(&self) -> bool {
        self.pid == process::id()
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the name of the socket on which this process answers importers.
    pub(super) fn socket(&self) -> [u8; 16] {
        self.shared.socket
    }

    /// Grants `granted` of `file` to holders of `token` from now on.
    pub(super) fn offer(&self, token: Token, granted: Granted, file: OwnedFd) -> Result<(), RemoteError> {
        let mut state = self.shared.state();
        if state.listener.is_none() {
            let failed = |errno| RemoteError::os("listening for importers", errno);
            let listener = listen_on(&self.shared.socket).map_err(failed)?;
            self.shared.add(&listener, LISTENER, epoll::EventFlags::IN).map_err(failed)?;
            state.listener = Some(listener);
        }
        state.exports.insert(token, Exported { granted, file, links: Vec::new() });
        Ok(())
    }

    /// Withdraws `token` and refuses leases on it. Returns the importers that may still hold leases.
    pub(super) fn withdraw(&self, token: Token) -> Vec<Arc<Link>> {
        let mut state = self.shared.state();
        let Some(exported) = state.exports.remove(&token) else { return Vec::new() };
        let links = exported.links.iter().filter_map(|key| match state.connections.get(key) {
            Some(Connection::Link { link, .. }) => Some(Arc::clone(link)),
            _ => None,
        });
        let links: Vec<_> = links.collect();
        for link in &links {
            close(link.control.word(), REVOKED);
        }
        links
    }

    /// Closes the connection to an importer that has no lease and gets no other.
    pub(super) fn hang_up(&self, link: &Link) {
        self.shared.state().connections.remove(&link.key);
    }

    /// Watches the exporter at the other end of `socket`: closes the word in `control` when it is gone.
    pub(super) fn watch(&self, socket: OwnedFd, control: Arc<Mapping>) -> Result<u64, RemoteError> {
        let mut state = self.shared.state();
        let key = state.next_key();
        self.shared
            .add(&socket, key, epoll::EventFlags::empty())
            .map_err(|errno| RemoteError::os("watching the exporting process", errno))?;
        state.connections.insert(key, Connection::Watch { socket, control });
        Ok(key)
    }

    /// Ends a [`watch`](Self::watch), and with it the connection to the exporter.
    pub(super) fn unwatch(&self, key: u64) {
        self.shared.state().connections.remove(&key);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.is_ours() {
            // In a forked child there is no such thread, and joining it would wait for ever.
            std::mem::forget(thread);
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        // Fails only when the counter is full, and then the thread wakes anyway.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if thread.join().is_err() {
            tracing::error!("the thread that shares memory had panicked");
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a source. The kernel reports hang-ups in any case.
    fn add(&self, source: &OwnedFd, key: u64, events: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(key), events)
    }

    fn serve(&self) {
        let mut events = Vec::with_capacity(32);
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.state().next_deadline().map(|deadline| {
                // A millisecond more, as the kernel rounds down.
                timespec(deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
            });
            events.clear();
            if let Err(errno) = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref())
                && errno != Errno::INTR
            {
                tracing::error!(%errno, "cannot wait for importers and exporters");
                // Avoids spinning, because retrying is the only option.
                thread::sleep(ACCEPT_AGAIN_AFTER);
            }
            let mut state = self.state();
            for event in &events {
                match event.data.u64() {
                    WAKE => {}
                    LISTENER => state.accept(self),
                    key => state.connection(self, key),
                }
            }
            state.on_time(self);
        }
    }
}

impl State {
    fn next_key(&mut self) -> u64 {
        self.connections_so_far += 1;
        FIRST_CONNECTION + self.connections_so_far
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.silent.front().map(|silent| silent.1).into_iter().chain(self.accept_again_at).min()
    }

    /// Handles due deadlines.
    fn on_time(&mut self, shared: &Shared) {
        let now = Instant::now();
        while let Some(&(key, deadline)) = self.silent.front() {
            let pending = matches!(self.connections.get(&key), Some(Connection::Silent { .. }));
            if pending && deadline > now && self.silent.len() <= MAX_SILENT {
                break;
            }
            if pending {
                tracing::debug!("a process connected and did not say what for; closing");
                self.connections.remove(&key);
            }
            self.silent.pop_front();
        }
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
            self.listen_for(shared, epoll::EventFlags::IN);
        }
    }

    fn listen_for(&self, shared: &Shared, events: epoll::EventFlags) {
        if let Some(listener) = &self.listener
            && let Err(errno) =
                epoll::modify(&shared.epoll, listener, epoll::EventData::new_u64(LISTENER), events)
        {
            tracing::error!(%errno, "cannot change what the thread that shares memory waits for");
        }
    }

    fn accept(&mut self, shared: &Shared) {
        // The kernel reports the rest again.
        for _ in 0..16 {
            let Some(listener) = &self.listener else { return };
            let accepted = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            let socket = match accepted {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => {
                    tracing::warn!(%errno, "cannot answer an importer now, will try again; raise `ulimit -n`?");
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
                    self.connections.insert(key, Connection::Silent { socket, peer });
                    self.silent.push_back((key, Instant::now() + HELLO_WITHIN));
                }
                Err(errno) => tracing::warn!(%errno, "cannot answer an importer"),
            }
        }
    }

    /// Handles an event of a connection: a silent one's request, or the end of another.
    fn connection(&mut self, shared: &Shared, key: u64) {
        match self.connections.remove(&key) {
            // Closed by this process meanwhile.
            None => {}
            Some(Connection::Silent { socket, peer }) => self.answer(shared, key, socket, peer),
            Some(Connection::Link { token, link, .. }) => {
                link.died();
                if let Some(exported) = self.exports.get_mut(&token) {
                    exported.links.retain(|&other| other != key);
                }
            }
            Some(Connection::Watch { socket, control }) => {
                close(control.word(), GONE);
                // The kernel would report it again and again. The import closes it when dropped.
                let _ = epoll::delete(&shared.epoll, &socket);
                self.connections.insert(key, Connection::Watch { socket, control });
            }
        }
    }

    fn answer(&mut self, shared: &Shared, key: u64, socket: OwnedFd, peer: Peer) {
        let mut hello = [0; HELLO_LEN + 1];
        let token = match recv(&socket, &mut hello, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return,
            Ok((len, _)) => parse_hello(&hello[..len.min(hello.len())]),
            Err(Errno::AGAIN | Errno::INTR) => {
                self.connections.insert(key, Connection::Silent { socket, peer });
                return;
            }
            Err(_) => return,
        };
        let own = rustix::process::geteuid().as_raw();
        let refused = if !may_share(peer.uid, own) {
            tracing::warn!(pid = peer.pid, uid = peer.uid, own, "refused memory to another user");
            Reply::ForeignUser
        } else if let Some(token) = token {
            match self.grant(shared, key, &socket, peer, token) {
                Ok((link, exported_to)) => {
                    tracing::debug!(pid = peer.pid, imports = exported_to, "granted an import");
                    self.connections.insert(key, Connection::Link { _socket: socket, token, link });
                    return;
                }
                Err(refused) => refused,
            }
        } else {
            Reply::BadHello
        };
        // If this fails, the importer sees the end of the connection.
        let _ = send(&socket, refused, &[]);
    }

    /// Hands the export to the importer at the other end of `socket`.
    fn grant(
        &mut self,
        shared: &Shared,
        key: u64,
        socket: &OwnedFd,
        peer: Peer,
        token: Token,
    ) -> Result<(Arc<Link>, usize), Reply> {
        let exported = self.exports.get_mut(&token).ok_or(Reply::Unknown)?;
        if exported.links.len() >= MAX_IMPORTS as usize {
            return Err(Reply::Full);
        }
        let refused = |errno: Errno| Reply::Os(errno.raw_os_error());
        let (control_file, control) = control_page().map_err(refused)?;
        // From now on only the end of this importer matters, which the kernel reports in any case.
        let data = epoll::EventData::new_u64(key);
        epoll::modify(&shared.epoll, socket, data, epoll::EventFlags::empty()).map_err(refused)?;
        let files = [exported.file.as_fd(), control_file.as_fd()];
        send(socket, Reply::Granted(exported.granted), &files).map_err(refused)?;
        exported.links.push(key);
        let link = Link { key, pid: peer.pid, control, dead: AtomicBool::new(false) };
        Ok((Arc::new(link), exported.links.len()))
    }
}

/// Sends without waiting. A new connection has room for one message.
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
        .map_err(|errno| RemoteError::os("asking for random bytes", errno))?;
    // Up to 256 bytes come whole once the kernel has started up (getrandom(2)).
    if len == bytes.len() { Ok(bytes) } else { Err(RemoteError::os("asking for random bytes", Errno::IO)) }
}

/// Returns the abstract address of the socket called `socket`.
pub(super) fn address(socket: &[u8; 16]) -> Result<SocketAddrUnix, Errno> {
    let name = format!("dma-remote-{:032x}", u128::from_be_bytes(*socket));
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Makes a socket as both sides use it: it keeps message boundaries, and shows the end of the peer.
pub(super) fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
}

pub(super) fn listen_on(socket: &[u8; 16]) -> Result<OwnedFd, Errno> {
    let listener = new_socket(SocketFlags::NONBLOCK)?;
    bind(&listener, &address(socket)?)?;
    listen(&listener, 128)?;
    Ok(listener)
}

fn timespec(duration: Duration) -> Timespec {
    // All durations here are seconds at most.
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use dma_core::Access;
    use rustix::net::connect;
    use rustix::net::sockopt::{Timeout, set_socket_timeout};

    use super::super::blob::Blob;
    use super::super::wire::{REPLY_LEN, encode_hello};
    use super::super::{Export, Import, Pages, SharedMemory};
    use super::*;

    fn exported() -> (Export, Blob) {
        let memory = SharedMemory::allocate(100, Pages::Normal).unwrap();
        let export = Export::new(&memory, 0..100, Access::READ).unwrap();
        let blob = Blob::parse(export.blob()).unwrap();
        (export, blob)
    }

    /// A peer that does not follow the protocol.
    fn stranger(blob: &Blob) -> OwnedFd {
        let socket = new_socket(SocketFlags::empty()).unwrap();
        connect(&socket, &address(&blob.socket).unwrap()).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
        socket
    }

    fn say(socket: &OwnedFd, message: &[u8]) {
        rustix::net::send(socket, message, SendFlags::NOSIGNAL).unwrap();
    }

    /// Blocks; None: the connection was closed.
    fn hear(socket: &OwnedFd) -> Option<Reply> {
        let mut reply = [0; REPLY_LEN];
        match recv(socket, &mut reply, RecvFlags::empty()) {
            Ok((0, _)) | Err(Errno::CONNRESET) => None,
            other => Some(Reply::parse(&reply[..other.unwrap().0]).expect("an answer")),
        }
    }

    #[test]
    fn strangers_who_say_nothing_do_not_stall_others() {
        let (export, blob) = exported();
        let strangers: Vec<_> = (0..3 * MAX_SILENT).map(|_| stranger(&blob)).collect();
        Import::open(export.blob()).unwrap().check().unwrap();
        // The first were cut off to make room, and the last are when their time is over.
        assert_eq!(hear(&strangers[0]), None);
        assert_eq!(hear(&strangers[3 * MAX_SILENT - 1]), None);
        Import::open(export.blob()).unwrap().check().unwrap();
    }

    #[test]
    fn nonsense_is_answered_and_nothing_more() {
        let (export, blob) = exported();
        let longer = [&encode_hello(blob.token)[..], &[0]].concat();
        for nonsense in [&b"GET / HTTP/1.1"[..], &[0; HELLO_LEN], &[0xff; 60_000], &longer[..]] {
            let stranger = stranger(&blob);
            say(&stranger, nonsense);
            assert_eq!(hear(&stranger), Some(Reply::BadHello));
            assert_eq!(hear(&stranger), None);
        }
        let guesser = stranger(&blob);
        say(&guesser, &encode_hello(Token([0; 16])));
        assert_eq!(hear(&guesser), Some(Reply::Unknown));
        Import::open(export.blob()).unwrap().check().unwrap();
    }

    #[test]
    fn descriptors_that_a_stranger_sends_are_not_kept() {
        let (export, blob) = exported();
        let sender = stranger(&blob);
        let (file, _) = control_page().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        let hello = encode_hello(blob.token);
        sendmsg(&sender, &[IoSlice::new(&hello)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        assert!(matches!(hear(&sender), Some(Reply::Granted(_))));
        let name = rustix::fs::fstat(&file).unwrap().st_ino;
        let kept = std::fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            rustix::fs::stat(path).is_ok_and(|stat| stat.st_ino == name)
        });
        assert_eq!(kept.count(), 1);
        drop(export);
    }

    #[test]
    fn an_importer_that_goes_on_talking_changes_nothing() {
        let (export, blob) = exported();
        let talker = stranger(&blob);
        say(&talker, &encode_hello(blob.token));
        assert!(matches!(hear(&talker), Some(Reply::Granted(_))));
        for _ in 0..3 {
            say(&talker, b"and another thing");
        }
        Import::open(export.blob()).unwrap().check().unwrap();
        export.revoke(Duration::from_secs(60)).unwrap();
        assert_eq!(hear(&talker), None);
    }

    #[test]
    fn an_importer_that_spoils_its_lease_word_makes_revoke_time_out() {
        let (export, blob) = exported();
        let import = Import::open(export.blob()).unwrap();
        let service = Service::get().unwrap();
        let key = *service.shared.state().exports[&blob.token].links.first().unwrap();
        let link = match &service.shared.state().connections[&key] {
            Connection::Link { link, .. } => Arc::clone(link),
            _ => unreachable!(),
        };
        link.control.word().store(u32::MAX, Ordering::Relaxed);
        let error = export.revoke(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, RemoteError::StillInUse { .. }), "{error}");
        drop(import);
        export.revoke(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn only_the_same_user_and_root_share() {
        assert!(may_share(1000, 1000) && may_share(0, 1000));
        assert!(!may_share(1001, 1000) && !may_share(1000, 0));
    }
}
