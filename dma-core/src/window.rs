//! [`Window`]: memory that somebody else may read or write at any time; and [`Export`], the grant that lets them.
#![expect(unsafe_code, reason = "copies in and out of memory that others write")]

use std::fmt;
use std::io;
use std::ops::RangeBounds;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use crate::region::{Range, Region};
use crate::{Access, BufferMut, Error, ErrorKind, ExportDescriptor, RawExport, Result};

/// A range of memory shared with a peer or a device: a peer's that was imported, our own that is exported, or a device's that the
/// CPU cannot reach.
///
/// There are no references to its bytes. They move by DMA (a window is a source and a destination), or by
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at) where the CPU can reach them, or between them and a file by
/// [`read_from`](Self::read_from) and [`write_to`](Self::write_to). Windows may overlap each other; an operation whose
/// own source and destination overlap is rejected as far as addresses show it (a region imported into the process that exported it
/// has two addresses).
#[derive(Clone)]
pub struct Window(pub(crate) Range);

impl Window {
    pub(crate) fn new(range: Range) -> Self {
        Self(range)
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The region that it views.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// Where it begins in its region, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.0.offset()
    }

    /// The bytes that `range` names, as a window of their own.
    ///
    /// # Panics
    ///
    /// If the range is not inside of this window.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        Self(self.0.slice(range))
    }

    /// Checks that the CPU may reach `len` bytes from `offset` on.
    fn check(&self, operation: &'static str, offset: usize, len: usize) -> Result<*mut u8> {
        let fail = |kind, message: String| {
            Error::new(kind, message).with_operation(operation).with_backend(self.0.region.0.backend)
        };
        if !self.0.region.0.cpu_visible {
            return Err(fail(ErrorKind::Unsupported, "the CPU cannot reach this memory".to_owned())
                .with_hint("copy it by DMA to or from local memory"));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.0.len) {
            return Err(fail(
                ErrorKind::OutOfRange,
                format!("{len} bytes at {offset} of a window of {}", self.0.len),
            )
            .with_numbers(len as u64, self.0.len.saturating_sub(offset) as u64));
        }
        Ok(self.0.ptr.as_ptr().wrapping_add(offset))
    }

    /// Copies bytes from `offset` on into `to`. The bytes are those at some moment during the call, not all at the same.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported, or a device's); `OutOfRange`.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let from = self.check("read shared memory", offset, to.len())?;
        let (head, body, tail) = words(from, to.len());
        let (to_head, rest) = to.split_at_mut(head);
        let (to_body, to_tail) = rest.split_at_mut(body * WORD);
        for (i, byte) in to_head.iter_mut().enumerate() {
            // SAFETY: in range by `check`; the region is mapped and initialized while `self` lives.
            *byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(i)) }.load(Ordering::Relaxed);
        }
        for (i, word) in to_body.chunks_exact_mut(WORD).enumerate() {
            // SAFETY: in range by `check`, and aligned since `words` counted up to an aligned address.
            let value = unsafe { AtomicUsize::from_ptr(from.wrapping_add(head + i * WORD).cast()) }
                .load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        for (i, byte) in to_tail.iter_mut().enumerate() {
            // SAFETY: in range by `check`.
            *byte = unsafe { AtomicU8::from_ptr(from.wrapping_add(head + body * WORD + i)) }
                .load(Ordering::Relaxed);
        }
        debug_assert_eq!(head + body * WORD + tail, to_head.len() + to_body.len() + to_tail.len());
        Ok(())
    }

    /// Copies `from` into the bytes from `offset` on. A peer can see it half done.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported, or a device's); `OutOfRange`.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.check("write shared memory", offset, from.len())?;
        let (head, body, _) = words(to, from.len());
        let (from_head, rest) = from.split_at(head);
        let (from_body, from_tail) = rest.split_at(body * WORD);
        for (i, byte) in from_head.iter().enumerate() {
            // SAFETY: in range by `check`; the region is mapped and writable by the CPU while `self` lives.
            unsafe { AtomicU8::from_ptr(to.wrapping_add(i)) }.store(*byte, Ordering::Relaxed);
        }
        for (i, word) in from_body.chunks_exact(WORD).enumerate() {
            let mut value = [0; WORD];
            value.copy_from_slice(word);
            let value = usize::from_ne_bytes(value);
            // SAFETY: in range by `check`, and aligned since `words` counted up to an aligned address.
            unsafe { AtomicUsize::from_ptr(to.wrapping_add(head + i * WORD).cast()) }
                .store(value, Ordering::Relaxed);
        }
        for (i, byte) in from_tail.iter().enumerate() {
            // SAFETY: in range by `check`.
            unsafe { AtomicU8::from_ptr(to.wrapping_add(head + body * WORD + i)) }
                .store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has the kernel read up to `len` bytes of `file`, from its byte `file_offset` on, into the bytes from `offset` on: `pread`, with no
    /// copy on the way. A peer can see it half done.
    ///
    /// Returns how many bytes were read; fewer than `len` at the end of the file, or if that is how the kernel did it, and 0 only at the
    /// end. Goes on when a signal interrupts it. Blocks as reading the file does.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported, or a device's); `OutOfRange`, for the window and for what a file's
    /// offset can be; `Os` for what reading answers, with that as its source.
    pub fn read_from(&self, offset: usize, len: usize, file: impl AsFd, file_offset: u64) -> Result<usize> {
        const WHAT: &str = "read a file into shared memory";
        let to = self.check(WHAT, offset, len)?;
        let at = self.file_offset(WHAT, file_offset)?;
        let fd = file.as_fd();
        self.count(WHAT, || {
            // SAFETY: in range by `check`; the region is mapped and writable while `self` lives. No reference is made: the kernel
            // writes the bytes as a device would.
            unsafe { libc::pread(fd.as_raw_fd(), to.cast(), len, at) }
        })
    }

    /// Has the kernel write up to `len` of the bytes from `offset` on to `file`, from its byte `file_offset` on: `pwrite`, with no copy on
    /// the way. The bytes are those at some moment during the call, not all at the same.
    ///
    /// Returns how many bytes were written; fewer than `len` if that is how the kernel did it (a full disk takes what fits, and the next call
    /// fails). Goes on when a signal interrupts it. Blocks as writing the file does.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the CPU cannot reach the memory (imported, or a device's); `OutOfRange`, for the window and for what a file's
    /// offset can be; `Os` for what writing answers, with that as its source.
    pub fn write_to(&self, offset: usize, len: usize, file: impl AsFd, file_offset: u64) -> Result<usize> {
        const WHAT: &str = "write shared memory to a file";
        let from = self.check(WHAT, offset, len)?;
        let at = self.file_offset(WHAT, file_offset)?;
        let fd = file.as_fd();
        self.count(WHAT, || {
            // SAFETY: in range by `check`; the region is mapped and initialized while `self` lives. No reference is made: the kernel
            // reads the bytes as a device would.
            unsafe { libc::pwrite(fd.as_raw_fd(), from.cast_const().cast(), len, at) }
        })
    }

    fn file_offset(&self, operation: &'static str, offset: u64) -> Result<libc::off_t> {
        libc::off_t::try_from(offset).map_err(|_| {
            Error::new(ErrorKind::OutOfRange, format!("byte {offset} of a file"))
                .with_operation(operation)
                .with_backend(self.0.region.0.backend)
                .with_numbers(offset, libc::off_t::MAX as u64)
        })
    }

    /// What `call` counted, once no signal interrupts it.
    fn count(&self, operation: &'static str, call: impl Fn() -> isize) -> Result<usize> {
        loop {
            if let Ok(n) = usize::try_from(call()) {
                return Ok(n);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(Error::from(error)
                    .with_operation(operation)
                    .with_backend(self.0.region.0.backend));
            }
        }
    }

    /// Grants a peer `rights` to this range, until the [`Export`] is revoked or dropped.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine cannot export, or not this memory; `AccessDenied` if the memory was not allocated as
    /// [`exportable`](crate::MemoryRequest::exportable) with these rights; `InvalidArgument` for an empty window or no rights;
    /// `OutOfResources`.
    pub fn export(&self, rights: Access) -> Result<Export> {
        let fail = |e: Error| e.with_operation("export").with_backend(self.0.region.0.backend);
        if self.is_empty() || rights.is_empty() {
            return Err(fail(Error::new(
                ErrorKind::InvalidArgument,
                "nothing to grant: no bytes or no rights",
            )));
        }
        // SAFETY: no reference to a window's bytes is ever made, and it becomes no buffer while the export lives, which keeps the region.
        let raw =
            unsafe { self.0.region.as_raw().export(self.offset(), self.len(), rights) }.map_err(fail)?;
        let descriptor = ExportDescriptor::new(
            self.0.region.0.backend,
            rights,
            raw.address(),
            self.len() as u64,
            raw.native(),
        )
        .map_err(fail)?;
        Ok(Export { raw, descriptor, region: self.0.region.clone() })
    }

    /// Makes it a unique buffer again, if it is the last view of local memory and no export of it is left.
    ///
    /// # Errors
    ///
    /// The window, unchanged, if another view, a transfer in flight or an export uses the region, or the CPU cannot reach it.
    pub fn try_into_mut(self) -> Result<BufferMut, Self> {
        if self.0.region.0.cpu_visible && self.0.region.is_sole() { Ok(BufferMut(self.0)) } else { Err(self) }
    }
}

/// The size of the unit that shared memory is read and written in where it is aligned.
const WORD: usize = size_of::<usize>();

/// How many bytes come before the first aligned word of `len` bytes at `at`, how many whole words follow, and how many bytes after.
fn words(at: *mut u8, len: usize) -> (usize, usize, usize) {
    let head = at.align_offset(WORD).min(len);
    let body = (len - head) / WORD;
    (head, body, len - head - body * WORD)
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Window").field(&self.0).finish()
    }
}

/// How long dropping an export waits for peers.
const DROP_WAITS: Duration = Duration::from_secs(1);

/// A grant of memory to a peer. Dropping it revokes the grant, which may wait a second or two for a peer that is still copying; memory that a peer does not
/// let go of in that time is leaked rather than reused.
pub struct Export {
    // Dropped first: revoked before the region can go.
    raw: Box<dyn RawExport>,
    descriptor: ExportDescriptor,
    region: Region,
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Err(error) = self.raw.revoke(DROP_WAITS) {
            // First, since who listens to the log may panic.
            std::mem::forget(self.region.clone());
            let backend = self.region.backend();
            tracing::error!(backend, %error, "a peer does not let go of exported memory, which is leaked");
        }
    }
}

impl Export {
    /// What the peer needs to import the memory.
    #[must_use]
    pub const fn descriptor(&self) -> &ExportDescriptor {
        &self.descriptor
    }

    /// Takes the grant back. When this returns `Ok`, no peer touches the memory any more; its copies fail as `Revoked`. Waits up to `timeout` for
    /// copies of peers that are under way.
    ///
    /// # Errors
    ///
    /// `TimedOut`, with the export, if a peer is still copying.
    pub fn revoke(mut self, timeout: Duration) -> Result<(), (Self, Error)> {
        match self.raw.revoke(timeout) {
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
    use crate::conformance::doc_engine;
    use crate::{DmaEngineExt, MemoryRequest};

    fn window(len: usize) -> Window {
        doc_engine().allocate_window(&MemoryRequest::new(len)).expect("memory is allocated")
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
        // At the end of the file there is less, and then nothing.
        assert_eq!(window.read_from(0, 5000, &source, 9_990).expect("read"), 10);
        assert_eq!(window.read_from(0, 5000, &source, 10_000).expect("read"), 0);
        assert_eq!(window.read_from(5000, 0, &source, 0).expect("no bytes"), 0);
    }

    #[test]
    fn what_is_no_range_or_no_file_is_refused() {
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

    /// A peer that does not let go.
    #[derive(Debug)]
    struct Held;

    impl RawExport for Held {
        fn native(&self) -> &[u8] {
            &[]
        }
        fn address(&self) -> u64 {
            0
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
        let region = window.region().clone();
        let descriptor = ExportDescriptor::new("reference", Access::WRITE, 0, 8, &[]).expect("a descriptor");
        let export = Export { raw: Box::new(Held), descriptor, region };
        let (export, error) = export.revoke(Duration::ZERO).expect_err("a peer has it");
        assert_eq!(error.to_string(), "revoke an export on reference: timed out");
        // Its drop would wait and leak.
        std::mem::forget(export);
    }

    #[cfg(not(loom))]
    #[test]
    fn a_panic_of_the_log_frees_nothing_that_a_peer_has() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        use std::sync::Arc;

        let window = window(8);
        let region = window.region().clone();
        drop(window);
        let descriptor = ExportDescriptor::new("reference", Access::WRITE, 0, 8, &[]).expect("a descriptor");
        let export = Export { raw: Box::new(Held), descriptor, region: region.clone() };
        let log = |_: &tracing::Event<'_>| panic!("the log is full");
        let dropped = AssertUnwindSafe(|| crate::queue::odd_device::with_log(log, || drop(export)));
        catch_unwind(dropped).expect_err("the log is told");
        assert_eq!(Arc::strong_count(&region.0), 2, "freed under the peer");
    }
}
