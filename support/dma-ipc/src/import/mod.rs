//! The importer's side.

#[cfg(test)]
mod tests;

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
use dma_process::above_stdio;
use rustix::io::Errno;
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

/// Maximum time that [`Import::open`] waits for the exporter. An exporter that is stopped for a shorter time
/// fails no import.
const OPEN_WAITS: Duration = Duration::from_secs(30);
/// Maximum of the waiting time that a caller can request. Longer times are reduced to it.
const MOST_WAITS: Duration = Duration::from_secs(86_400);
/// Pause before a request to a busy exporter is repeated.
const RETRY: Duration = Duration::from_millis(20);

/// A range of memory of another process, or of this process.
///
/// If the exporter allocated the memory as a [`SharedMemory`](super::SharedMemory), it is mapped into this
/// process, and has a [pointer](Self::ptr). [Memory of another kind](super::Export::of_process_memory) is not
/// mapped: only [`read_at`](Self::read_at) and [`write_at`](Self::write_at) access it.
///
/// The bytes may change at any time, so they may only be copied, and only under a [lease](Self::lease). A
/// revocation refuses new leases, and completes when no lease is left.
///
/// After the exporter has revoked the export or has ended, leases are refused. Mapped memory stays mapped
/// until the import is dropped, so a copy under a lease never faults, and never accesses bytes of another
/// process.
pub struct Import {
    control: Arc<Mapping>,
    data: Data,
    grant: Grant,
    pid: u32,
    // This field is dropped after `data`, so that the connection to the exporter ends only after the bytes
    // are unmapped.
    _watch: Watch,
}

/// The way by which the bytes are accessed.
enum Data {
    Mapped {
        mapping: Mapping,
        /// Offset of the grant in the mapping. Other bytes of the mapping only fill its pages.
        skip: usize,
    },
    Process(ProcessMemory),
}

/// Watches for the end of the exporter. Dropping it closes the connection.
struct Watch {
    service: Arc<Service>,
    key: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // In a forked child, the connection belongs to the parent.
        if self.service.is_ours() {
            self.service.unwatch(self.key);
        }
    }
}

impl Data {
    /// Maps the pages of a grant from a file that the exporter sent.
    fn map(granted: Granted, file: OwnedFd, pid: u32) -> Result<Self, RemoteError> {
        let Granted { grant, offset, page_size, .. } = granted;
        let broke = |what| RemoteError::Protocol { pid, what };
        // `Reply::parse` has checked that these sums do not overflow.
        let begin = offset & !(page_size - 1);
        let end = (offset + grant.len).next_multiple_of(page_size);
        if !cannot_shrink(file.as_fd(), end) {
            return Err(broke("the memory that it sent can shrink during use"));
        }
        let too_long = broke("it granted more than this process can map");
        let Ok(len) = usize::try_from(end - begin) else { return Err(too_long) };
        let writable = grant.rights.contains(Access::WRITE);
        let mapping = Mapping::of_peer(file.as_fd(), begin, len, writable)
            .map_err(|errno| RemoteError::os("mapping imported memory (mmap)", errno))?;
        Ok(Self::Mapped { mapping, skip: (offset - begin) as usize })
    }
}

impl Import {
    /// Imports the memory of `blob`, the bytes of [`Export::blob`](super::Export::blob). Blocks until the
    /// exporter has responded, at most 30 seconds.
    ///
    /// Range and rights come from the exporter, not from the descriptor: see [`grant`](Self::grant). A
    /// program that knows the length can have it checked by [`open_expecting`](Self::open_expecting).
    ///
    /// # Errors
    ///
    /// [`RemoteError::MalformedBlob`]; [`RemoteError::UnknownExport`] if the export was revoked,
    /// [`RemoteError::PeerGone`] if the exporter has ended; [`RemoteError::ForeignUser`],
    /// [`RemoteError::TooManyImports`], [`RemoteError::Busy`], [`RemoteError::Timeout`],
    /// [`RemoteError::Protocol`]; [`RemoteError::Os`] if this process or the exporter has no file descriptors
    /// or memory left.
    pub fn open(blob: &[u8]) -> Result<Self, RemoteError> {
        Self::open_within(blob, OPEN_WAITS)
    }

    /// Imports as [`open`](Self::open) does, but fails if the exporter does not grant exactly `len` bytes.
    /// The length is checked before memory is mapped.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open); also [`RemoteError::OtherLength`].
    pub fn open_expecting(blob: &[u8], len: u64) -> Result<Self, RemoteError> {
        Self::open_checked(blob, OPEN_WAITS, Some(len))
    }

    /// Imports as [`open`](Self::open) does, but waits at most `within` for the exporter.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn open_within(blob: &[u8], within: Duration) -> Result<Self, RemoteError> {
        Self::open_checked(blob, within, None)
    }

    /// Imports the memory. With `expected`, fails if the exporter grants another number of bytes.
    fn open_checked(blob: &[u8], within: Duration, expected: Option<u64>) -> Result<Self, RemoteError> {
        let blob = Blob::parse(blob)?;
        let deadline = Instant::now() + within.clamp(Duration::from_millis(1), MOST_WAITS);
        let mut busy = None;
        let (exporter, (granted, files)) = loop {
            let asked = Exporter::connect(&blob, deadline, within).and_then(|exporter| {
                let answer = exporter.ask()?;
                Ok((exporter, answer))
            });
            match asked {
                Err(error @ RemoteError::Busy { .. }) if Instant::now() + RETRY < deadline => {
                    busy = Some(error);
                    std::thread::sleep(RETRY);
                }
                // The last answer of the exporter says more than the end of the time.
                Err(error @ RemoteError::Timeout { .. }) => return Err(busy.unwrap_or(error)),
                asked => break asked?,
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
            return Err(broke("the page that it sent can shrink during use"));
        }
        let failed = |errno| RemoteError::os("mapping imported memory (mmap)", errno);
        let control = Arc::new(Mapping::of_peer(control.as_fd(), 0, word_page, true).map_err(failed)?);
        let grant = granted.grant;
        let data = match granted.kind {
            FileKind::Shared => Data::map(granted, data, pid)?,
            FileKind::Process => ProcessMemory::new(data, grant.address)
                .map(Data::Process)
                .ok_or(broke("it sent a file that is not its address space"))?,
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

    /// Returns the id of the exporting process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns a pointer to the first granted byte, valid until the import is dropped. Returns `None` if the
    /// memory is not mapped into this process.
    ///
    /// Access these [`len`](Self::len) bytes only under a [lease](Self::lease), and only with the granted
    /// rights: a write without the right raises a signal. Make no references to them.
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
        // The length fits `usize`, because `Reply::parse` refuses grants that end beyond `isize::MAX`.
        self.grant.len as usize
    }

    /// Returns a pointer to the byte at `offset` of the grant, if `len` bytes from there on are granted with
    /// the rights `needs`.
    ///
    /// The conditions of [`ptr`](Self::ptr) hold for this pointer.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Permission`], [`RemoteError::OutOfRange`]; [`RemoteError::Unsupported`] if the memory
    /// is not mapped into this process.
    pub fn span(&self, offset: u64, len: u64, needs: Access) -> Result<NonNull<u8>, RemoteError> {
        self.check_span(offset, len, needs)?;
        match &self.data {
            Data::Mapped { mapping, skip } => Ok(mapping.at(skip + offset as usize)),
            Data::Process(_) => Err(RemoteError::Unsupported {
                what: "a pointer to memory that is not a `SharedMemory` of the exporter",
                remedy: "copy it by read_at and write_at",
            }),
        }
    }

    /// Checks that `len` bytes at `offset` of the grant are granted with the rights `needs`.
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

    /// Takes a lease, which is the right to access the bytes until the lease is dropped. Never blocks. A
    /// revocation waits for leases, so take a lease for each copy, or for a series of small copies. Taking
    /// and dropping a lease are one atomic addition each, together about 20 ns.
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

    /// Succeeds if a lease could be taken now. This function takes no lease, so the result may be outdated
    /// when the function returns.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Revoked`], [`RemoteError::PeerGone`].
    pub fn check(&self) -> Result<(), RemoteError> {
        lease::closed(self.control.word()).map_or(Ok(()), |closed| Err(self.refused(closed)))
    }

    /// Copies the bytes from `offset` of the grant to `to`. Takes a lease for the copy, or one for each MiB
    /// of memory that is not mapped into this process.
    ///
    /// # Errors
    ///
    /// The errors of [`span`](Self::span) and [`lease`](Self::lease), after which `to` is unchanged. For
    /// memory that is not mapped into this process also [`RemoteError::Vanished`] if the exporter unmapped
    /// it, and [`RemoteError::Os`]; such a copy may have written a part of `to` before any error.
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

    /// Copies `from` to the bytes from `offset` of the grant on. Takes a lease for the copy, or one for each
    /// MiB of memory that is not mapped into this process.
    ///
    /// # Errors
    ///
    /// The errors of [`read_at`](Self::read_at). A part of the exporter's bytes may have been written.
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

    /// Returns the error for a copy that stopped early. `offset` is the start of the copied chunk.
    #[cold]
    fn cut(&self, cut: Cut, offset: u64) -> RemoteError {
        match cut {
            Cut::Gone => RemoteError::PeerGone { pid: self.pid },
            Cut::Unmapped(at) => RemoteError::Vanished { pid: self.pid, offset: offset + at as u64 },
            Cut::Refused(errno) => RemoteError::os("copying memory of the exporting process", errno),
        }
    }

    /// Returns the error for a refused lease.
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

/// The right to access the bytes of an [`Import`]. A revocation waits for it.
///
/// A forgotten lease (`mem::forget`) blocks the revocation until the import is dropped.
#[derive(Debug)]
#[must_use = "the right ends when the lease is dropped"]
pub struct Lease<I: Deref<Target = Import>>(I);

/// A [`Lease`] that keeps its [`Import`] alive, for copies that end after the call that started them.
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

/// A connection to the exporter, before the request.
struct Exporter<'a> {
    blob: &'a Blob,
    socket: OwnedFd,
    pid: u32,
    deadline: Instant,
    within: Duration,
}

impl<'a> Exporter<'a> {
    /// Connects to the exporter, and checks its user.
    fn connect(blob: &'a Blob, deadline: Instant, within: Duration) -> Result<Self, RemoteError> {
        let failed = |errno| {
            RemoteError::os("connecting to the exporting process (socket, connect, getsockopt)", errno)
        };
        let socket = new_socket(SocketFlags::empty()).map_err(failed)?;
        let mut exporter = Exporter { blob, socket, pid: blob.pid, deadline, within };
        let address = address(&blob.socket).map_err(failed)?;
        exporter
            .limited(Timeout::Send, || connect(&exporter.socket, &address))?
            .map_err(|errno| exporter.error(errno))?;

        let peer = peer(exporter.socket.as_fd()).map_err(failed)?;
        if peer.pid != 0 {
            exporter.pid = peer.pid;
        }
        let own = rustix::process::geteuid().as_raw();
        // After the exporter has ended, any user could listen under its name.
        if !may_share(peer.uid, own) && peer.uid != blob.uid {
            return Err(RemoteError::ForeignUser { pid: exporter.pid, uid: peer.uid, own });
        }
        Ok(exporter)
    }

    /// Requests the export. Returns the grant, with the files of the memory and of the lease word's page.
    fn ask(&self) -> Result<(Granted, Option<[OwnedFd; 2]>), RemoteError> {
        let hello = encode_hello(self.blob.token);
        match self.limited(Timeout::Send, || send(&self.socket, &hello, SendFlags::NOSIGNAL))? {
            // After these errors, the exporter has closed the connection, but may have sent the reason
            // before.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(self.error(errno)),
        }

        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut reply = [0; REPLY_LEN + 1];
        let mut is_reset = false;
        let received = loop {
            let received = self.limited(Timeout::Recv, || {
                let buffer = &mut [IoSliceMut::new(&mut reply)];
                recvmsg(&self.socket, buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
            })?;
            match received {
                // If the exporter closed the connection without reading the request, the kernel reports this
                // once, before the answer.
                Err(Errno::CONNRESET) if !is_reset => is_reset = true,
                other => break other.map_err(|errno| self.error(errno))?,
            }
        };
        let files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(received) => Some(received),
            _ => None,
        });
        let files: Vec<_> = files.flatten().map(above_stdio).collect();
        let broke = |what| RemoteError::Protocol { pid: self.pid, what };
        if received.bytes == 0 {
            return Err(self.absent());
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            // The exporter sent more than two file descriptors, or this process has none left for them.
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
            Some(Reply::Os(errno)) => {
                Err(RemoteError::PeerOs { pid: self.pid, source: std::io::Error::from_raw_os_error(errno) })
            }
            None => Err(broke("its answer is not valid")),
        }
    }

    /// Makes a call that waits for the exporter, within the remaining time. Repeats it if a signal interrupts
    /// it. The kernel reports that even if the handler has `SA_RESTART`, because the socket has a time limit.
    fn limited<R>(
        &self,
        side: Timeout,
        mut call: impl FnMut() -> Result<R, Errno>,
    ) -> Result<Result<R, Errno>, RemoteError> {
        loop {
            // A repeated call could wait for the whole limit again, so each has only the time that is left.
            self.limit(side)?;
            match call() {
                Err(Errno::INTR) => {}
                result => return Ok(result),
            }
        }
    }

    /// Limits the next wait to the remaining time.
    fn limit(&self, side: Timeout) -> Result<(), RemoteError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.error(Errno::AGAIN));
        }
        set_socket_timeout(&self.socket, side, Some(left.max(Duration::from_millis(1)))).map_err(|errno| {
            RemoteError::os("limiting the wait for the exporting process (setsockopt)", errno)
        })
    }

    /// Returns the error for a failed call on the connection.
    fn error(&self, errno: Errno) -> RemoteError {
        let Self { pid, within: waited, .. } = *self;
        match errno {
            Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE => self.absent(),
            Errno::AGAIN => RemoteError::Timeout { operation: "importing memory", pid, waited },
            errno => RemoteError::os("importing memory (connect, send, recvmsg)", errno),
        }
    }

    /// Returns the error for a missing answer: the process has ended, or it still runs but no longer exports
    /// the memory.
    fn absent(&self) -> RemoteError {
        let alive = self.blob.started != 0 && started(self.blob.pid) == Some(self.blob.started);
        if alive {
            RemoteError::UnknownExport { pid: self.pid }
        } else {
            RemoteError::PeerGone { pid: self.pid }
        }
    }
}

/// Returns the start of the process in clock ticks since boot. Returns `None` if the process does not exist
/// or has ended.
///
/// Uses fields 3 and 22 of `/proc/PID/stat`, see proc_pid_stat(5).
pub(super) fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may contain any characters. No later field contains a parenthesis.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
