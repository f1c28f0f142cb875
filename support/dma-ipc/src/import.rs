//! The importing side.

use std::fmt;
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::Access;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketFlags, connect,
    recvmsg, send,
};

use super::blob::Blob;
use super::lease::{self, Closed};
use super::mapping::Mapping;
use super::memory::cannot_shrink;
use super::peercred::peer;
use super::process::{CHUNK, Cut, ProcessMemory};
use super::service::{Service, address, may_share, new_socket, wake};
use super::wire::{FileKind, Granted, REPLY_LEN, Reply, encode_hello};
use super::{Grant, MAX_IMPORTS, MAX_LEASES, RemoteError};

/// Longest wait of [`Import::open`] for the exporter.
const OPEN_WAITS: Duration = Duration::from_secs(5);
/// Limit of the time that callers may ask to wait.
const MOST_WAITS: Duration = Duration::from_secs(86_400);
/// Pause before a busy exporter is asked again.
const RETRY: Duration = Duration::from_millis(20);

/// A range of another process's memory, or of this one's.
///
/// It is mapped into this process if it is of a [`SharedMemory`](super::SharedMemory); then it has a
/// [pointer](Self::ptr). [Memory of another kind](super::Export::of_process_memory) is not, and reached by
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at) only.
///
/// The bytes may change at any time, so they are reached by copy, and only under a [lease](Self::lease). The
/// exporter gets its memory back once no lease is left, and none can be taken afterwards.
///
/// When the exporter revokes, or its process ends, leases are refused. Mapped memory stays mapped until the
/// import is dropped, so a copy with a lease never faults, and never meets bytes of another process.
pub struct Import {
    control: Arc<Mapping>,
    data: Data,
    grant: Grant,
    pid: u32,
    // After `data`: the exporter sees the importer leave only when it has unmapped the bytes.
    _watch: Watch,
}

/// Access to the bytes.
enum Data {
    Mapped {
        mapping: Mapping,
        /// Start of the grant in the mapping. The bytes around the grant only fill the pages.
        skip: usize,
    },
    Process(ProcessMemory),
}

/// Notices the end of the exporter; the connection ends with it.
struct Watch {
    service: Arc<Service>,
    key: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // In a forked child the connection is the parent's.
        if self.service.is_ours() {
            self.service.unwatch(self.key);
        }
    }
}

impl Data {
    fn map(granted: Granted, file: OwnedFd, pid: u32) -> Result<Self, RemoteError> {
        let Granted { grant, offset, page_size, .. } = granted;
        let broke = |what| RemoteError::Protocol { pid, what };
        // Parsing checked that these numbers can be added and rounded.
        let begin = offset & !(page_size - 1);
        let end = (offset + grant.len).next_multiple_of(page_size);
        if !cannot_shrink(file.as_fd(), end) {
            return Err(broke("the memory it sent could vanish while it is in use"));
        }
        let too_long = broke("it granted more than this process can map");
        let Ok(len) = usize::try_from(end - begin) else { return Err(too_long) };
        let writable = grant.rights.contains(Access::WRITE);
        let mapping = Mapping::of_peer(file.as_fd(), begin, len, writable)
            .map_err(|errno| RemoteError::os("mapping imported memory", errno))?;
        Ok(Self::Mapped { mapping, skip: (offset - begin) as usize })
    }
}

impl Import {
    /// Imports the memory of `blob`, the bytes of [`Export::blob`](super::Export::blob). Blocks until the
    /// exporter answered, 5 seconds at most.
    ///
    /// The exporter states range and rights, not the descriptor: see [`grant`](Self::grant). A program that
    /// knows the length passes it to [`open_expecting`](Self::open_expecting).
    ///
    /// # Errors
    ///
    /// [`RemoteError::MalformedBlob`]; [`RemoteError::UnknownExport`] if it was revoked,
    /// [`RemoteError::PeerGone`] if the process ended; [`RemoteError::ForeignUser`],
    /// [`RemoteError::TooManyImports`], [`RemoteError::Busy`], [`RemoteError::Timeout`],
    /// [`RemoteError::Protocol`]; [`RemoteError::Os`] when this process or the exporter has no descriptors or
    /// memory left.
    pub fn open(blob: &[u8]) -> Result<Self, RemoteError> {
        Self::open_within(blob, OPEN_WAITS)
    }

    /// Does what [`open`](Self::open) does, but only if exactly `len` bytes are granted. Nothing is mapped
    /// otherwise.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open); also [`RemoteError::OtherLength`].
    pub fn open_expecting(blob: &[u8], len: u64) -> Result<Self, RemoteError> {
        Self::open_checked(blob, OPEN_WAITS, Some(len))
    }

    /// Does what [`open`](Self::open) does, but waits for the exporter no longer than `within`.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_within(blob: &[u8], within: Duration) -> Result<Self, RemoteError> {
        Self::open_checked(blob, within, None)
    }

    fn open_checked(blob: &[u8], within: Duration, expected: Option<u64>) -> Result<Self, RemoteError> {
        let blob = Blob::parse(blob)?;
        let deadline = Instant::now() + within.clamp(Duration::from_millis(1), MOST_WAITS);
        let (exporter, (granted, files)) = loop {
            let exporter = Exporter::connect(&blob, deadline, within)?;
            match exporter.ask() {
                Err(RemoteError::Busy { .. }) if Instant::now() + RETRY < deadline => {
                    std::thread::sleep(RETRY)
                }
                answer => break (exporter, answer?),
            }
        };
        let Exporter { socket, pid, .. } = exporter;
        let len = granted.grant.len;
        if let Some(expected) = expected.filter(|expected| *expected != len) {
            return Err(RemoteError::OtherLength { pid, expected, granted: len });
        }
        let broke = |what| RemoteError::Protocol { pid, what };
        let [data, control] = files.ok_or(broke("it granted the import but did not send the memory"))?;

        let word_page = rustix::param::page_size();
        if !cannot_shrink(control.as_fd(), word_page as u64) {
            return Err(broke("the page that it sent could vanish while it is in use"));
        }
        let failed = |errno| RemoteError::os("mapping imported memory", errno);
        let control = Arc::new(Mapping::of_peer(control.as_fd(), 0, word_page, true).map_err(failed)?);
        let grant = granted.grant;
        let data = match granted.kind {
            FileKind::Shared => Data::map(granted, data, pid)?,
            FileKind::Process => ProcessMemory::new(data, grant.address)
                .map(Data::Process)
                .ok_or(broke("it sent something else than its memory"))?,
        };

        let service = Service::get()?;
        let key = service.watch(socket, Arc::clone(&control))?;
        let _watch = Watch { service, key };
        Ok(Self { control, data, grant, pid, _watch })
    }

    /// Returns the grant of the exporter.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Returns the exporting process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the first granted byte, valid until the import is dropped. None if the memory is of a kind
    /// that is not mapped here.
    ///
    /// Touch it and the [`len`](Self::len) bytes from it only under a [lease](Self::lease), only as the
    /// rights of the grant allow (writing without the right ends in a signal), and make no references to it.
    #[must_use]
    pub fn ptr(&self) -> Option<NonNull<u8>> {
        match &self.data {
            Data::Mapped { mapping, skip } => Some(mapping.at(*skip)),
            Data::Process(_) => None,
        }
    }

    /// Returns the number of bytes granted; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        // It fits into `usize`, because the memory is mapped.
        self.grant.len as usize
    }

    /// Returns the byte at `offset` of the grant, if `len` bytes from there are granted with the rights
    /// `needs`.
    ///
    /// The pointer is as that of [`ptr`](Self::ptr).
    ///
    /// # Errors
    ///
    /// [`RemoteError::Permission`], [`RemoteError::OutOfRange`]; [`RemoteError::Unsupported`] if the memory
    /// is of a kind that is not mapped here.
    pub fn span(&self, offset: u64, len: u64, needs: Access) -> Result<NonNull<u8>, RemoteError> {
        self.check_span(offset, len, needs)?;
        match &self.data {
            Data::Mapped { mapping, skip } => Ok(mapping.at(skip + offset as usize)),
            Data::Process(_) => Err(RemoteError::Unsupported {
                what: "a pointer to memory that the exporter did not allocate to be shared",
                remedy: "copy it with read_at and write_at",
            }),
        }
    }

    fn check_span(&self, offset: u64, len: u64, needs: Access) -> Result<(), RemoteError> {
        let Grant { rights, len: available, .. } = self.grant;
        if !rights.contains(needs) {
            return Err(RemoteError::Permission { requested: needs, granted: rights });
        }
        match offset.checked_add(len) {
            Some(end) if end <= available => Ok(()),
            _ => Err(RemoteError::OutOfRange { offset, len, available }),
        }
    }

    /// Takes the right to touch the bytes, until the lease is dropped. Never blocks. Revoking waits for
    /// leases, so take one for each copy, or for a run of small copies. Taking and dropping it are one atomic
    /// addition each, some 20 ns together.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Revoked`] and [`RemoteError::PeerGone`], both permanent;
    /// [`RemoteError::TooManyLeases`].
    #[inline]
    pub fn lease(&self) -> Result<Lease<&Self>, RemoteError> {
        Lease::new(self)
    }

    /// Takes a [`lease`](Self::lease) that keeps the import alive.
    ///
    /// # Errors
    ///
    /// See [`lease`](Self::lease).
    #[inline]
    pub fn lease_owned(self: &Arc<Self>) -> Result<OwnedLease, RemoteError> {
        Lease::new(Arc::clone(self))
    }

    /// Succeeds while leases can be taken. Takes none, and so may be outdated when it returns.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Revoked`], [`RemoteError::PeerGone`].
    pub fn check(&self) -> Result<(), RemoteError> {
        lease::closed(self.control.word()).map_or(Ok(()), |closed| Err(self.refused(closed)))
    }

    /// Copies the bytes from `offset` of the grant to `to`, under leases of its own: one, or one per MiB of
    /// memory that is not mapped here.
    ///
    /// # Errors
    ///
    /// See [`span`](Self::span) and [`lease`](Self::lease); `to` is then unchanged. For memory that is not
    /// mapped here also [`RemoteError::Vanished`] when the exporter unmapped it, and [`RemoteError::Os`]; and
    /// then some of `to` may have been written when the copy fails.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), RemoteError> {
        self.check_span(offset, to.len() as u64, Access::READ)?;
        match &self.data {
            Data::Mapped { mapping, skip } => {
                let _lease = self.lease()?;
                mapping.read(skip + offset as usize, to).ok_or_else(|| self.out_of_range(offset, to.len()))
            }
            Data::Process(memory) => {
                for (at, chunk) in (offset..).step_by(CHUNK).zip(to.chunks_mut(CHUNK)) {
                    let _lease = self.lease()?;
                    memory.read(at, chunk).map_err(|cut| self.cut(cut, at))?;
                }
                Ok(())
            }
        }
    }

    /// Copies `from` to the bytes from `offset` of the grant, under leases of its own: one, or one per MiB of
    /// memory that is not mapped here.
    ///
    /// # Errors
    ///
    /// See [`read_at`](Self::read_at), but some of the exporter's bytes may have been written.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), RemoteError> {
        self.check_span(offset, from.len() as u64, Access::WRITE)?;
        match &self.data {
            Data::Mapped { mapping, skip } => {
                let _lease = self.lease()?;
                let written = mapping.write(skip + offset as usize, from);
                written.ok_or_else(|| self.out_of_range(offset, from.len()))
            }
            Data::Process(memory) => {
                for (at, chunk) in (offset..).step_by(CHUNK).zip(from.chunks(CHUNK)) {
                    let _lease = self.lease()?;
                    memory.write(at, chunk).map_err(|cut| self.cut(cut, at))?;
                }
                Ok(())
            }
        }
    }

    fn out_of_range(&self, offset: u64, len: usize) -> RemoteError {
        RemoteError::OutOfRange { offset, len: len as u64, available: self.grant.len }
    }

    #[cold]
    fn cut(&self, cut: Cut, offset: u64) -> RemoteError {
        match cut {
            Cut::Gone => RemoteError::PeerGone { pid: self.pid },
            Cut::Unmapped(at) => RemoteError::Vanished { pid: self.pid, offset: offset + at as u64 },
            Cut::Refused(errno) => RemoteError::os("copying memory of the exporting process", errno),
        }
    }

    #[cold]
    fn refused(&self, closed: Closed) -> RemoteError {
        match closed {
            Closed::Revoked => RemoteError::Revoked { pid: self.pid },
            Closed::Gone => RemoteError::PeerGone { pid: self.pid },
            Closed::Full => RemoteError::TooManyLeases { max: MAX_LEASES },
        }
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grant, pid, .. } = self;
        f.debug_struct("Import").field("grant", grant).field("pid", pid).finish_non_exhaustive()
    }
}

/// The right to touch the bytes of an [`Import`]. It delays revocation.
///
/// Forgetting one (`mem::forget`) blocks revocation until the import is dropped.
#[derive(Debug)]
#[must_use = "the right ends when the lease is dropped"]
pub struct Lease<I: Deref<Target = Import>>(I);

/// A [`Lease`] that keeps its [`Import`] alive, for copies that outlast the call that starts them.
pub type OwnedLease = Lease<Arc<Import>>;

impl<I: Deref<Target = Import>> Lease<I> {
    #[inline]
    fn new(import: I) -> Result<Self, RemoteError> {
        lease::acquire(import.control.word()).map_err(|closed| import.refused(closed))?;
        Ok(Self(import))
    }

    /// Returns the import of this lease.
    #[must_use]
    pub const fn import(&self) -> &I {
        &self.0
    }
}

impl<I: Deref<Target = Import>> Drop for Lease<I> {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.control.word();
        if lease::release(word) {
            wake(word);
        }
    }
}

/// A connection before the request.
struct Exporter<'a> {
    blob: &'a Blob,
    socket: OwnedFd,
    pid: u32,
    deadline: Instant,
    within: Duration,
}

impl<'a> Exporter<'a> {
    fn connect(blob: &'a Blob, deadline: Instant, within: Duration) -> Result<Self, RemoteError> {
        let failed = |errno| RemoteError::os("connecting to the exporting process", errno);
        let socket = new_socket(SocketFlags::empty()).map_err(failed)?;
        let mut exporter = Exporter { blob, socket, pid: blob.pid, deadline, within };
        exporter.limit(Timeout::Send)?;
        let address = address(&blob.socket).map_err(failed)?;
        retry_on_intr(|| connect(&exporter.socket, &address)).map_err(|errno| exporter.error(errno))?;

        let peer = peer(exporter.socket.as_fd()).map_err(failed)?;
        if peer.pid != 0 {
            exporter.pid = peer.pid;
        }
        let own = rustix::process::geteuid().as_raw();
        // The name is free for any user to take when the exporter has ended.
        if !may_share(peer.uid, own) && peer.uid != blob.uid {
            return Err(RemoteError::ForeignUser { pid: exporter.pid, uid: peer.uid, own });
        }
        Ok(exporter)
    }

    /// Requests the export. Returns the grant, with the memory and the page of the lease word.
    fn ask(&self) -> Result<(Granted, Option<[OwnedFd; 2]>), RemoteError> {
        self.limit(Timeout::Send)?;
        let hello = encode_hello(self.blob.token);
        match retry_on_intr(|| send(&self.socket, &hello, SendFlags::NOSIGNAL)) {
            // The exporter closed the connection, and may have said why.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(self.error(errno)),
        }

        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut reply = [0; REPLY_LEN + 1];
        let mut is_reset = false;
        let received = loop {
            self.limit(Timeout::Recv)?;
            let buffer = &mut [IoSliceMut::new(&mut reply)];
            match recvmsg(&self.socket, buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                // The kernel reports once, before the answer, that the exporter closed without reading the
                // request.
                Err(Errno::CONNRESET) if !is_reset => is_reset = true,
                other => break other.map_err(|errno| self.error(errno))?,
            }
        };
        let files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(received) => Some(received),
            _ => None,
        });
        let files: Vec<_> = files.flatten().collect();
        let broke = |what| RemoteError::Protocol { pid: self.pid, what };
        if received.bytes == 0 {
            return Err(self.absent());
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            // It sent more than two, or this process has no descriptor left for them.
            return Err(RemoteError::os("receiving the descriptors of imported memory", Errno::MFILE));
        }
        let own = rustix::process::geteuid().as_raw();
        match Reply::parse(&reply[..received.bytes.min(reply.len())]) {
            Some(Reply::Granted(granted)) => Ok((granted, files.try_into().ok())),
            Some(Reply::Unknown) => Err(RemoteError::UnknownExport { pid: self.pid }),
            Some(Reply::Busy) => Err(RemoteError::Busy { pid: self.pid }),
            Some(Reply::Full) => Err(RemoteError::TooManyImports { pid: self.pid, max: MAX_IMPORTS }),
            Some(Reply::ForeignUser) => {
                Err(RemoteError::ForeignUser { pid: self.pid, uid: self.blob.uid, own })
            }
            Some(Reply::BadHello) => Err(broke("it did not understand this process")),
            Some(Reply::Os(errno)) => Err(RemoteError::Os {
                operation: "granting an import, in the exporting process",
                source: std::io::Error::from_raw_os_error(errno),
            }),
            None => Err(broke("its answer makes no sense")),
        }
    }

    /// Bounds the next wait by the remaining time.
    fn limit(&self, side: Timeout) -> Result<(), RemoteError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.error(Errno::AGAIN));
        }
        set_socket_timeout(&self.socket, side, Some(left.max(Duration::from_millis(1))))
            .map_err(|errno| RemoteError::os("bounding the wait for the exporting process", errno))
    }

    fn error(&self, errno: Errno) -> RemoteError {
        let Self { pid, within: waited, .. } = *self;
        match errno {
            Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE => self.absent(),
            Errno::AGAIN => RemoteError::Timeout { operation: "importing memory", pid, waited },
            errno => RemoteError::os("importing memory", errno),
        }
    }

    /// The error for a missing answer: the process ended, or lives and exports no more.
    fn absent(&self) -> RemoteError {
        let alive = self.blob.started != 0 && started(self.blob.pid) == Some(self.blob.started);
        if alive {
            RemoteError::UnknownExport { pid: self.pid }
        } else {
            RemoteError::PeerGone { pid: self.pid }
        }
    }
}

/// Returns the start of the process in clock ticks since boot. None if there is none, or it has ended.
///
/// Fields 3 and 22 of `/proc/PID/stat`, see proc_pid_stat(5).
pub(super) fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, field 2, may hold anything. No later field has a parenthesis.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
    use rustix::net::{accept, recv};

    use super::super::blob::Token;
    use super::super::memory::control_page;
    use super::super::service::{self, listen_on, random};
    use super::*;

    #[test]
    fn processes_have_a_start() {
        let own = started(std::process::id()).unwrap();
        assert!(own > 0);
        assert_eq!(started(std::process::id()), Some(own));
        assert_eq!(started(u32::MAX), None);
    }

    /// Imports from an exporter that answers with `reply` and `files`, right or wrong.
    fn import_from(reply: Reply, files: &[&OwnedFd]) -> Result<Import, RemoteError> {
        import_by(Import::open, reply, files).map(|(import, _)| import)
    }

    /// Also returns the exporter's end of the connection. When it is dropped, the exporter has hung up, and
    /// accesses fail from then on.
    fn import_by(
        open: impl FnOnce(&[u8]) -> Result<Import, RemoteError> + Send,
        reply: Reply,
        files: &[&OwnedFd],
    ) -> Result<(Import, OwnedFd), RemoteError> {
        let pid = std::process::id();
        let blob = Blob { pid, uid: 0, started: 0, socket: random().unwrap(), token: Token([0; 16]) };
        let listener = listen_on(&blob.socket).unwrap();
        rustix::io::ioctl_fionbio(&listener, false).unwrap();
        thread::scope(|scope| {
            let importer = scope.spawn(|| open(&blob.encode()));
            let socket = accept(&listener).unwrap();
            recv(&socket, &mut [0; 100], RecvFlags::empty()).unwrap();
            let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
            service::send(&socket, reply, &files).unwrap();
            Ok((importer.join().unwrap()?, socket))
        })
    }

    fn granted(len: u64, rights: Access) -> Reply {
        let page_size = rustix::param::page_size() as u64;
        let grant = Grant { address: 0, len, rights };
        Reply::Granted(Granted { grant, offset: 0, page_size, kind: FileKind::Shared })
    }

    fn sealed() -> OwnedFd {
        control_page().unwrap().0
    }

    fn unsealed() -> OwnedFd {
        let file = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, rustix::param::page_size() as u64).unwrap();
        file
    }

    #[test]
    fn memory_that_could_fault_is_refused() {
        let page = rustix::param::page_size() as u64;
        let good = granted(page, Access::READ);
        // The length is known even after the exporter has hung up.
        assert_eq!(import_from(good, &[&sealed(), &sealed()]).unwrap().len() as u64, page);
        let refused = |reply, files: &[&OwnedFd]| {
            let error = import_from(reply, files).unwrap_err();
            assert!(matches!(error, RemoteError::Protocol { .. }), "{error}");
        };
        refused(good, &[&unsealed(), &sealed()]);
        refused(good, &[&sealed(), &unsealed()]);
        refused(granted(page + 1, Access::READ), &[&sealed(), &sealed()]);
        refused(good, &[]);
        refused(good, &[&sealed()]);
        let grant = Grant { address: 1, len: 1, rights: Access::READ };
        let process = Granted { grant, offset: 1, page_size: 1, kind: FileKind::Process };
        refused(Reply::Granted(process), &[&sealed(), &sealed()]);
        refused(Reply::Granted(process), &[]);
        let nothing = granted(0, Access::READ);
        refused(nothing, &[&sealed(), &sealed()]);
    }

    /// A sealed file of `len` bytes that takes up no memory yet.
    fn sparse(len: u64) -> OwnedFd {
        let file = memfd_create("sparse", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, len).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        file
    }

    fn blocks(file: &OwnedFd) -> i64 {
        fstat(file).unwrap().st_blocks
    }

    #[test]
    fn another_length_than_expected_is_refused_with_both_numbers() {
        const MIB: u64 = 1 << 20;
        let file = sparse(3 << 30);
        for len in [3 << 30, MIB + 1, MIB - 1] {
            // Without any file: the lengths are compared before files are looked at.
            for files in [&[&file, &sealed()][..], &[]] {
                let expecting = |blob: &[u8]| Import::open_expecting(blob, MIB);
                let error = import_by(expecting, granted(len, Access::all()), files).unwrap_err();
                let expected = matches!(error, RemoteError::OtherLength { expected: MIB, granted, .. } if granted == len);
                assert!(expected, "{error}");
                assert!(error.to_string().contains("1048576"), "{error}");
                assert!(error.to_string().contains(&len.to_string()), "{error}");
            }
        }
        let expecting = |blob: &[u8]| Import::open_expecting(blob, MIB);
        let (import, _exporter) =
            import_by(expecting, granted(MIB, Access::all()), &[&file, &sealed()]).unwrap();
        assert_eq!(import.len() as u64, MIB);
    }

    /// Granted memory that is never touched takes no memory.
    #[test]
    fn importing_takes_no_memory() {
        let file = sparse(3 << 30);
        let reply = granted(3 << 30, Access::all());
        let (import, _exporter) = import_by(Import::open, reply, &[&file, &sealed()]).unwrap();
        assert_eq!(blocks(&file), 0, "in units of 512 bytes");
        let mut byte = [1];
        import.read_at((3 << 30) - 1, &mut byte).unwrap();
        assert_eq!(byte, [0]);
    }

    #[test]
    fn refusals_say_why() {
        let refused = |reply| import_from(reply, &[]).unwrap_err();
        assert!(matches!(refused(Reply::Unknown), RemoteError::UnknownExport { .. }));
        assert!(matches!(refused(Reply::Full), RemoteError::TooManyImports { .. }));
        assert!(matches!(refused(Reply::ForeignUser), RemoteError::ForeignUser { .. }));
        assert!(matches!(refused(Reply::BadHello), RemoteError::Protocol { .. }));
        let full = refused(Reply::Os(Errno::MFILE.raw_os_error()));
        assert!(full.to_string().contains("in the exporting process"), "{full}");
    }
}
