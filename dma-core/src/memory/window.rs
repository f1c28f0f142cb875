//! [`Window`]: memory that peers and devices may read or write at any time. [`Export`]: the grant of access
//! to a peer.
#![expect(unsafe_code, reason = "copies from and to memory that other code may write")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use dma_process::count;

use crate::memory::empty_region::NothingGranted;
use crate::memory::idle::with_idle_memory_released;
use crate::memory::location::ListedExport;
use crate::memory::range::{Range, view_methods};
use crate::memory::region::Region;
use crate::{
    Access, BufferMut, DeviceMemory, Error, ErrorKind, ExportDescriptor, HostMemory, RawExport, Result,
    racy_copy,
};

/// A range of memory that is shared with a peer or a device: memory imported from a peer, memory exported to
/// a peer, or a device's own memory ([`Place::Device`](crate::Place::Device)), which the CPU may be unable to
/// reach. The name is from MPI's one-sided communication (`MPI_Win`).
///
/// No references to a window's bytes exist. Operations read and write them by DMA. If the CPU can reach them,
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at) copy them, and [`read_from`](Self::read_from)
/// and [`write_to`](Self::write_to) transfer them from and to a file. Windows may overlap each other.
///
/// An operation whose source and destination overlap is refused if the library can detect the overlap: within
/// one region, between a region and its import into the same process, or between two imports of one export.
/// The library cannot detect that a peer has exported the same bytes twice.
#[derive(Clone)]
pub struct Window(pub(crate) Range);

view_methods!(Window: slice);

impl BufferMut {
    /// Converts the buffer to a window, whose bytes are only copied and never borrowed.
    #[must_use]
    pub fn share(self) -> Window {
        Window::new(self.0)
    }
}

impl Window {
    pub(crate) fn new(range: Range) -> Self {
        Self(range)
    }

    /// Checks that the CPU can reach the `len` bytes at `offset`.
    fn check(&self, operation: &'static str, offset: usize, len: usize) -> Result<*mut u8> {
        let fail = |kind, message: String| {
            Error::new(kind, message).with_operation(operation).with_backend(self.0.region.0.backend)
        };
        if !self.0.region.is_cpu_visible() {
            return Err(fail(ErrorKind::Unsupported, "the CPU cannot reach this memory".to_owned())
                .with_hint("copy the bytes by DMA from or to local memory"));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.0.len) {
            return Err(fail(
                ErrorKind::OutOfRange,
                format!(
                    "{} at offset {offset} of a window of {}",
                    count(len, "byte", "bytes"),
                    count(self.0.len, "byte", "bytes")
                ),
            )
            .with_numbers(len as u64, self.0.len.saturating_sub(offset) as u64));
        }
        Ok(self.0.addr.offset(offset).as_ptr())
    }

    /// Checks that the CPU may write the `len` bytes at `offset`.
    fn check_write(&self, operation: &'static str, offset: usize, len: usize) -> Result<*mut u8> {
        if self.0.region.is_read_only() {
            return Err(Error::new(ErrorKind::AccessDenied, "the memory is registered as read-only")
                .with_operation(operation)
                .with_backend(self.0.region.0.backend)
                .with_hint("register it with `Access::WRITE`"));
        }
        self.check(operation, offset, len)
    }

    /// Fills `to` with the bytes that begin at `offset`. Bytes that other code writes at the same time may be
    /// old or new.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported or device memory); `OutOfRange`.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let from = self.check("read shared memory", offset, to.len())?;
        // SAFETY: `check` has checked the range, and the region stays mapped while `self` lives. No reference
        // to a window's bytes exists, and `to` is exclusive.
        unsafe { racy_copy::copy(to.as_mut_ptr(), from, to.len()) };
        Ok(())
    }

    /// Copies `from` to the bytes that begin at `offset`. A peer may see a partial update.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported or device memory); `AccessDenied` if the
    /// memory is registered as read-only; `OutOfRange`.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.check_write("write shared memory", offset, from.len())?;
        // SAFETY: `check_write` has checked the range and that the memory is writable, and the region stays
        // mapped while `self` lives. No reference to a window's bytes exists, so `from` is other memory.
        unsafe { racy_copy::copy(to, from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Reads up to `len` bytes of `file`, beginning at `file_offset`, to the bytes that begin at `offset`.
    /// Uses `pread`, without an intermediate copy. A peer may see a partial update.
    ///
    /// Returns the number of bytes read. The number is below `len` at the end of the file or if the kernel
    /// stops early, and 0 only at the end of the file. Resumes after signals. Blocks while the kernel reads
    /// the file.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported or device memory); `AccessDenied` if the
    /// memory is registered as read-only; `OutOfRange` if the bytes are outside the window or the file's
    /// offset is too great; `Os`, with the source, if the read fails.
    pub fn read_from(&self, offset: usize, len: usize, file: impl AsFd, file_offset: u64) -> Result<usize> {
        let fd = file.as_fd();
        let operation = "read a file into shared memory";
        let to = self.check_write(operation, offset, len)?;
        self.with_file(operation, to, file_offset, |to, at| {
            // SAFETY: `check_write` has checked the range and that the memory is writable, and the region
            // stays mapped while `self` lives. The kernel writes the bytes as a device would, and no
            // reference to them exists.
            unsafe { libc::pread(fd.as_raw_fd(), to.cast(), len, at) }
        })
    }

    /// Writes up to `len` bytes, beginning at `offset`, to `file`, beginning at `file_offset`. Uses `pwrite`,
    /// without an intermediate copy. Bytes that other code writes at the same time may be old or new.
    ///
    /// Returns the number of bytes written. The number is below `len` if the kernel stops early. If the disk
    /// becomes full, the kernel writes the bytes that fit, and the next call fails. Resumes after signals.
    /// Blocks while the kernel writes the file.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported or device memory); `OutOfRange` if the
    /// bytes are outside the window or the file's offset is too great; `Os`, with the source, if the write
    /// fails.
    pub fn write_to(&self, offset: usize, len: usize, file: impl AsFd, file_offset: u64) -> Result<usize> {
        let fd = file.as_fd();
        let operation = "write shared memory to a file";
        let from = self.check(operation, offset, len)?;
        self.with_file(operation, from, file_offset, |from, at| {
            // SAFETY: `check` has checked the range, and the region stays mapped and initialized while `self`
            // lives. The kernel reads the bytes as a device would, and no reference to them exists.
            unsafe { libc::pwrite(fd.as_raw_fd(), from.cast_const().cast(), len, at) }
        })
    }

    /// Calls `transfer` with the address of the bytes and the file's offset, and repeats the call if a signal
    /// interrupts it.
    fn with_file(
        &self,
        operation: &'static str,
        bytes: *mut u8,
        file_offset: u64,
        transfer: impl Fn(*mut u8, libc::off_t) -> isize,
    ) -> Result<usize> {
        let fail = |e: Error| e.with_operation(operation).with_backend(self.0.region.0.backend);
        let at = libc::off_t::try_from(file_offset).map_err(|_| {
            let error = Error::new(ErrorKind::OutOfRange, format!("file offset {file_offset}"));
            fail(error.with_numbers(file_offset, libc::off_t::MAX as u64))
        })?;
        loop {
            if let Ok(n) = usize::try_from(transfer(bytes, at)) {
                return Ok(n);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(fail(error.into()));
            }
        }
    }

    /// Grants a peer `rights` to this range, until the [`Export`] is revoked or dropped.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine cannot export this memory; `AccessDenied` if the memory was not allocated
    /// as [`exportable`](crate::MemoryRequest::exportable) with these rights; `InvalidArgument` if `rights`
    /// are empty; `OutOfResources`; `Unsupported` in a process that was forked after the memory was
    /// registered.
    pub fn export(&self, rights: Access) -> Result<Export> {
        let fail = |e: Error| e.with_operation("export").with_backend(self.0.region.0.backend);
        self.0.region.check_process().map_err(fail)?;
        if rights.is_empty() {
            return Err(fail(
                Error::new(ErrorKind::InvalidArgument, "the export grants no rights")
                    .with_hint("grant `Access::READ`, `Access::WRITE` or both"),
            ));
        }
        if self.is_empty() {
            let descriptor = ExportDescriptor::new(self.0.region.0.backend, rights, 0, &[]).map_err(fail)?;
            return Ok(Export::new(Box::new(NothingGranted), descriptor, &self.0));
        }
        // SAFETY: no reference to a window's bytes exists. The export keeps a handle of the region, so the
        // window cannot become a buffer while the export lives. If revoking fails, the export leaks the
        // handle.
        let export = || unsafe { self.0.region.as_raw().export(self.offset(), self.len(), rights) };
        let raw = with_idle_memory_released(export).map_err(fail)?;
        let descriptor =
            ExportDescriptor::new(self.0.region.0.backend, rights, self.len() as u64, raw.native())
                .map_err(fail)?;
        Ok(Export::new(raw, descriptor, &self.0))
    }

    /// Returns these bytes as memory that the engine of another device can
    /// [register](crate::DmaEngineExt::register_device) by dma-buf, without a CPU mapping. For example, GPU
    /// memory can become the source of an RDMA write. The other engine's window keeps this window's region
    /// alive.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine, its driver or this memory has no dma-buf, and in a process that was
    /// forked after the memory was registered; `AccessDenied` if the device may not both read and write the
    /// memory, because a dma-buf grants both.
    pub fn dmabuf(&self) -> Result<DeviceMemory> {
        let region = &self.0.region;
        let fail = |e: Error| e.with_operation("get a dma-buf").with_backend(region.backend());
        region.check_process().map_err(fail)?;
        if region.access() != Access::all() {
            return Err(fail(
                Error::new(
                    ErrorKind::AccessDenied,
                    format!(
                        "a dma-buf needs the rights READ and WRITE, but the memory grants only {:?}",
                        region.access()
                    ),
                )
                .with_hint("allocate or register the memory with both rights"),
            ));
        }
        // SAFETY: the dma-buf becomes part of a `DeviceMemory` that keeps the region alive, and whose dma-buf
        // only unsafe code can get. No reference to a window's bytes exists.
        let (fd, offset) = unsafe { region.as_raw().dmabuf() }.map_err(fail)?;
        // SAFETY: the owner is a handle of the region, which keeps the memory allocated. No reference to a
        // window's bytes exists, and a window cannot become a buffer while another handle exists.
        let memory = unsafe { DeviceMemory::from_raw(self.0.addr, self.len(), region.clone()) };
        // SAFETY: `RawRegion::dmabuf` returned the offset of the region's first byte in the dma-buf, and the
        // window begins `self.offset()` bytes after that byte. It also promises that the file cannot be made
        // shorter.
        Ok(unsafe { memory.with_dmabuf(fd, offset + self.offset() as u64) })
    }

    /// Deregisters the region and returns the owner of its memory, if the owner's type is `M` and this is the
    /// last view of the region.
    ///
    /// # Errors
    ///
    /// The window, unchanged, if the memory has no owner of this type, or another view, a transfer in flight
    /// or an export uses the region.
    pub fn into_owner<M: std::any::Any>(self) -> Result<M, Self> {
        let Range { region, addr, len, .. } = self.0;
        region.into_owner().map_err(|region| Self(Range::of(region, addr, len)))
    }

    /// Deregisters the window's region. Returns the host memory if the region was made by registering
    /// existing host memory: see [`Region::deregister`]. Memory that the engine allocated is freed, a pool's
    /// memory returns to the pool, the owner of device memory is dropped, and an import ends.
    ///
    /// # Errors
    ///
    /// `InUse`, with the window, while another view, a transfer in flight or an export uses the region;
    /// `Unsupported`, with the window, in a process that was forked after the memory was registered.
    pub fn deregister(self) -> Result<Option<HostMemory>, (Self, Error)> {
        let Range { region, addr, len, .. } = self.0;
        region.deregister().map_err(|(region, e)| (Self(Range::of(region, addr, len)), e))
    }

    /// Converts the window to a unique buffer, if it is the last view of local memory and no export exists.
    ///
    /// # Errors
    ///
    /// The window, unchanged, if another view, a transfer in flight or an export uses the region, if the CPU
    /// cannot reach the memory, or if the memory is [`DeviceMemory`], [shared](HostMemory::from_shared) or
    /// [read-only](HostMemory::is_read_only).
    pub fn try_into_mut(self) -> Result<BufferMut, Self> {
        let region = &self.0.region;
        if region.can_be_buffer() && !region.is_read_only() && region.is_sole() {
            Ok(BufferMut(self.0))
        } else {
            Err(self)
        }
    }
}

/// Timeout of the revocation by the destructor of [`Export`]. The destructor of the raw export may then try
/// again, with a timeout that the engine chooses.
const DROP_WAITS: Duration = Duration::from_secs(1);

/// A grant of memory to a peer. Dropping this value revokes the grant, and waits up to 2 s for a peer that is
/// still copying. Memory that the peer does not release is leaked. In a forked child, dropping the parent's
/// export leaves the grant.
pub struct Export {
    // This field is dropped first, so that the grant is revoked before the region can be dropped.
    raw: Box<dyn RawExport>,
    descriptor: ExportDescriptor,
    region: Region,
    _listed: ListedExport,
}

impl Drop for Export {
    fn drop(&mut self) {
        if self.region.check_process().is_err() {
            std::mem::forget(std::mem::replace(&mut self.raw, Box::new(NothingGranted)));
            return;
        }
        if let Err(error) = self.raw.revoke(DROP_WAITS) {
            // Leak the region before the log call, because a log subscriber may panic.
            std::mem::forget(self.region.clone());
            let backend = self.region.backend();
            crate::guarded_log!(error, backend, %error, "a peer does not release exported memory, so the memory is leaked");
        }
    }
}

impl Export {
    fn new(raw: Box<dyn RawExport>, descriptor: ExportDescriptor, range: &Range) -> Self {
        let listed = ListedExport::new(&descriptor, range.located());
        Self { raw, descriptor, region: range.region.clone(), _listed: listed }
    }

    /// Returns the descriptor that the peer needs to import the memory.
    #[must_use]
    pub const fn descriptor(&self) -> &ExportDescriptor {
        &self.descriptor
    }

    /// Revokes the grant. After `Ok`, no peer accesses the memory, and peers' copies fail with `Revoked`.
    /// Waits up to `timeout` for peers' copies in progress.
    ///
    /// # Errors
    ///
    /// `TimedOut`, with the export, if a peer is still copying; `Unsupported` in a forked child of the
    /// process that granted it.
    pub fn revoke(mut self, timeout: Duration) -> Result<(), (Self, Error)> {
        match self.region.check_process().and_then(|()| self.raw.revoke(timeout)) {
            Ok(()) => Ok(()),
            Err(e) => {
                let error = e.with_operation("revoke an export").with_backend(self.region.backend());
                Err((self, error))
            }
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("descriptor", &self.descriptor)
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::doc_engine;
    use crate::{DmaEngineExt, ErrorKind, HostMemory, MemoryRequest};

    fn window(len: usize) -> Window {
        doc_engine().allocate_window(&MemoryRequest::new(len)).expect("memory is allocated")
    }

    /// The pages may be write-protected, so the memory stays read-only after it was deregistered.
    #[test]
    fn shared_memory_that_was_registered_read_only_never_becomes_writable() {
        let bytes: &'static mut [u8] = Box::leak(vec![7; 64].into_boxed_slice());
        let (start, len) = (std::ptr::NonNull::from(bytes).cast(), 64);
        #[expect(unsafe_code, reason = "shared memory is made from a pointer")]
        // SAFETY: the bytes are never freed, and no reference to them is left.
        let memory = unsafe { HostMemory::from_shared(start, len, ()) };
        let (engine, read) = (doc_engine(), MemoryRequest::new(0).with_access(Access::READ));
        let window = engine.register_window(memory, &read).expect("registered");
        let region = window.region().clone();
        drop(window);
        let memory = region.deregister().expect("unused").expect("host memory");
        assert!(memory.is_read_only());
        let refused = engine.register_window(memory, &MemoryRequest::new(0)).expect_err("writable");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    }

    #[test]
    fn files_are_read_and_written_in_place() {
        let sample: Vec<u8> = (0..10_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let source = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(source.path(), &sample).expect("written");
        let target = tempfile::tempfile().expect("a file");
        let window = window(5000);
        assert_eq!(window.read_from(1000, 3000, &source, 500).expect("read"), 3000);
        let mut bytes = vec![0; 5000];
        window.read_at(0, &mut bytes).expect("readable");
        assert_eq!(bytes[1000..4000], sample[500..3500]);
        assert!(bytes[..1000].iter().chain(&bytes[4000..]).all(|byte| *byte == 0), "nothing but those");
        assert_eq!(window.write_to(1000, 3000, &target, 70).expect("written"), 3000);
        let mut arrived = vec![0; 3000];
        std::os::unix::fs::FileExt::read_exact_at(&target, &mut arrived, 70).expect("readable");
        assert_eq!(arrived, sample[500..3500]);
        // A read at the end of the file returns fewer bytes, and the next read returns 0.
        assert_eq!(window.read_from(0, 5000, &source, 9_990).expect("read"), 10);
        assert_eq!(window.read_from(0, 5000, &source, 10_000).expect("read"), 0);
        assert_eq!(window.read_from(5000, 0, &source, 0).expect("no bytes"), 0);
    }

    #[test]
    fn a_bad_range_or_a_missing_file_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        let window = window(100);
        for (offset, len) in [(0, 101), (100, 1), (101, 0), (usize::MAX, 2)] {
            for e in [window.read_from(offset, len, &file, 0), window.write_to(offset, len, &file, 0)] {
                assert_eq!(e.expect_err("out of range").kind(), ErrorKind::OutOfRange);
            }
        }
        assert_eq!(
            window.write_to(0, 1, &file, 1 << 63).expect_err("no offset").kind(),
            ErrorKind::OutOfRange
        );
        let (reader, writer) = io::pipe().expect("a pipe");
        for e in [window.read_from(0, 1, &reader, 0), window.write_to(0, 1, &writer, 0)] {
            let e = e.expect_err("a pipe has no offsets");
            assert_eq!(e.kind(), ErrorKind::Os);
            assert!(std::error::Error::source(&e).is_some_and(|source| source.is::<io::Error>()), "{e}");
        }
    }

    /// An export whose peer never releases the memory.
    #[derive(Debug)]
    struct Held;

    #[expect(unsafe_code, reason = "implements an unsafe trait")]
    // SAFETY: revoking never succeeds.
    unsafe impl RawExport for Held {
        fn native(&self) -> &[u8] {
            &[]
        }
        fn revoke(&mut self, _: Duration) -> Result<()> {
            Err(Error::bare(ErrorKind::TimedOut))
        }
    }

    #[test]
    fn views_may_be_used_where_a_panic_is_caught() {
        let window = window(8);
        let caught = std::panic::catch_unwind(|| window.write_at(4, b"tail").is_ok());
        assert!(caught.expect("no panic"));
        fn safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
        safe::<Window>();
        safe::<BufferMut>();
        safe::<crate::Buffer>();
        safe::<Region>();
    }

    #[test]
    fn an_export_that_is_held_on_to_says_which_call_and_which_backend() {
        let window = window(8);
        let descriptor = ExportDescriptor::new("reference", Access::WRITE, 8, &[]).expect("a descriptor");
        let export = Export::new(Box::new(Held), descriptor, &window.0);
        let (export, error) = export.revoke(Duration::ZERO).expect_err("a peer has it");
        assert_eq!(error.to_string(), "revoke an export on reference: timed out");
        // Dropping the export would wait, and then leak the region.
        std::mem::forget(export);
    }

    #[cfg(not(loom))]
    #[test]
    fn a_panic_of_the_log_frees_nothing_that_a_peer_has() {
        let window = window(8);
        let region = window.region().clone();
        let descriptor = ExportDescriptor::new("reference", Access::WRITE, 8, &[]).expect("a descriptor");
        let export = Export::new(Box::new(Held), descriptor, &window.0);
        drop(window);
        let log = |_: &tracing::Event<'_>| panic!("this log subscriber panics");
        test_support::log::with_log(log, || drop(export));
        assert_eq!(region.0.users(), 2, "the memory was freed while the peer can access it");
    }
}
