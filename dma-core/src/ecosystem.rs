//! Implements traits of other crates for buffers. Each crate has a feature of the same name.
#![expect(unsafe_code, reason = "implements unsafe traits of other crates for buffers")]

#[cfg(feature = "compio")]
pub use compio::CompioBufMut;

#[cfg(feature = "compio")]
mod compio {
    use std::mem::MaybeUninit;

    use compio_buf::{IoBuf, IoBufMut, SetLen};

    use crate::{Buffer, BufferMut};

    /// Compio writes the buffer to files and sockets.
    impl IoBuf for Buffer {
        fn as_init(&self) -> &[u8] {
            self
        }
    }

    /// Compio writes the buffer to files and sockets.
    impl IoBuf for BufferMut {
        fn as_init(&self) -> &[u8] {
            self
        }
    }

    /// A buffer into which compio reads files and sockets.
    ///
    /// [`BufferMut`] itself is not an [`IoBufMut`], because [`as_uninit`](IoBufMut::as_uninit) lets safe code
    /// write uninitialized bytes, which the buffer's owner and devices would read:
    ///
    /// ```compile_fail,E0277
    /// # fn demo(mut buffer: dma_core::BufferMut) {
    /// fn as_uninit(buffer: &mut impl compio_buf::IoBufMut) -> &mut [std::mem::MaybeUninit<u8>] {
    ///     buffer.as_uninit()
    /// }
    /// as_uninit(&mut buffer).fill(std::mem::MaybeUninit::uninit());
    /// # }
    /// ```
    #[derive(Debug)]
    pub struct CompioBufMut(BufferMut);

    impl CompioBufMut {
        /// Wraps a buffer for reads by compio.
        ///
        /// # Safety
        ///
        /// Nobody writes uninitialized bytes to the slice from [`as_uninit`](IoBufMut::as_uninit). The
        /// files and sockets of compio write only bytes that they have read.
        #[must_use]
        pub const unsafe fn new(buffer: BufferMut) -> Self {
            Self(buffer)
        }

        /// Returns the buffer.
        #[must_use]
        pub fn into_inner(self) -> BufferMut {
            self.0
        }
    }

    /// Compio writes the buffer to files and sockets.
    impl IoBuf for CompioBufMut {
        fn as_init(&self) -> &[u8] {
            &self.0
        }
    }

    impl SetLen for CompioBufMut {
        /// Has no effect, because all bytes of a buffer are initialized and its length is fixed.
        unsafe fn set_len(&mut self, len: usize) {
            debug_assert!(len <= self.0.len());
        }
    }

    /// Compio reads files and sockets into the buffer. The result of a read is the number of bytes read.
    /// [`buf_len`](IoBuf::buf_len) always returns the length of the whole buffer.
    impl IoBufMut for CompioBufMut {
        fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
            let bytes: &mut [u8] = &mut self.0;
            let (begin, len) = (bytes.as_mut_ptr().cast(), bytes.len());
            // SAFETY: the slice has the bytes and the lifetime of `self`. The caller of `new` has promised
            // that only initialized bytes are written.
            unsafe { std::slice::from_raw_parts_mut(begin, len) }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::Read;

        use super::*;
        use crate::DmaEngineExt;
        use crate::reference::doc_engine;

        #[test]
        fn a_buffer_is_one_of_compio() {
            let buffer = doc_engine().allocate(8).expect("memory");
            // SAFETY: this test writes initialized bytes only.
            let mut buffer = unsafe { CompioBufMut::new(buffer) };
            assert_eq!((buffer.buf_len(), buffer.buf_capacity()), (8, 8));
            for (slot, byte) in buffer.as_uninit().iter_mut().zip(b"abc") {
                slot.write(*byte);
            }
            // SAFETY: all bytes of a buffer are initialized.
            unsafe { buffer.set_len(3) };
            assert_eq!(buffer.as_init(), b"abc\0\0\0\0\0");
            let slice = IoBuf::slice(buffer, 1..3);
            assert_eq!(slice.as_init(), b"bc");
            let buffer = compio_buf::IntoInner::into_inner(slice).into_inner().freeze();
            let mut text = String::new();
            let read = IoBuf::into_reader(buffer).read_to_string(&mut text).expect("text");
            assert_eq!((read, &text[..3]), (8, "abc"));
        }
    }
}

#[cfg(all(feature = "tokio-uring", not(target_env = "musl")))]
mod tokio_uring {
    use tokio_uring::buf::{IoBuf, IoBufMut};

    use crate::{Buffer, BufferMut};

    // SAFETY: the memory does not move when the buffer is moved, and the buffer keeps it alive.
    unsafe impl IoBuf for Buffer {
        fn stable_ptr(&self) -> *const u8 {
            self.as_ptr()
        }

        fn bytes_init(&self) -> usize {
            self.len()
        }

        fn bytes_total(&self) -> usize {
            self.len()
        }
    }

    // SAFETY: the memory does not move when the buffer is moved, and the buffer keeps it alive.
    unsafe impl IoBuf for BufferMut {
        fn stable_ptr(&self) -> *const u8 {
            self.as_ptr()
        }

        fn bytes_init(&self) -> usize {
            self.len()
        }

        fn bytes_total(&self) -> usize {
            self.len()
        }
    }

    // SAFETY: the memory does not move when the buffer is moved. The buffer keeps it alive and is the only
    // view of its bytes.
    unsafe impl IoBufMut for BufferMut {
        fn stable_mut_ptr(&mut self) -> *mut u8 {
            self.as_mut_ptr()
        }

        /// Has no effect, because all bytes of a buffer are initialized and its length is fixed.
        unsafe fn set_init(&mut self, pos: usize) {
            debug_assert!(pos <= self.len());
        }
    }

    #[cfg(test)]
    mod tests {
        use tokio_uring::buf::BoundedBuf;

        use crate::DmaEngineExt;
        use crate::reference::doc_engine;

        #[test]
        fn files_of_tokio_uring_are_written_from_buffers_and_read_into_them() {
            // A sandbox may forbid io_uring, so skip the test.
            let Ok(runtime) = tokio_uring::Runtime::new(&tokio_uring::builder()) else { return };
            let engine = doc_engine();
            let named = tempfile::NamedTempFile::new().expect("a file");
            runtime.block_on(async {
                let file = tokio_uring::fs::File::from_std(named.reopen().expect("it opens"));
                let mut source = engine.allocate(1000).expect("memory");
                source.fill(7);
                let (result, source) = file.write_all_at(source.freeze(), 0).await;
                result.expect("written");
                let destination = engine.allocate(2000).expect("memory");
                let (result, mut destination) = file.read_at(destination, 100).await;
                assert_eq!(result.expect("read"), 900);
                assert!(destination[..900] == source[..900] && destination[900..] == [0; 1100]);
                destination.fill(9);
                let (result, slice) = file.read_at(destination.slice(10..20), 0).await;
                assert_eq!(result.expect("read"), 10);
                let destination = slice.into_inner();
                assert!(destination[9..21] == [9, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 9]);
                file.close().await.expect("closed");
            });
        }
    }
}

#[cfg(feature = "vm-memory")]
mod guest_memory {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use vm_memory::bitmap::Bitmap;
    use vm_memory::mmap::GuestRegionMmap;

    use crate::{Error, ErrorKind, HostMemory, Result};

    impl HostMemory {
        /// Makes memory from a region of a virtual machine's memory, which the guest may access at any time.
        /// [`DmaEngineExt::register_window`](crate::DmaEngineExt::register_window) registers the memory.
        /// Writes by a device or by the [`Window`](crate::Window) do not mark pages in the region's bitmap of
        /// dirty pages.
        ///
        /// # Errors
        ///
        /// `AccessDenied` if this process maps the region without the rights to read and to write.
        pub fn from_guest_region<B: Bitmap + Send + Sync + 'static>(
            region: Arc<GuestRegionMmap<B>>,
        ) -> Result<Self> {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let begin = NonNull::new(region.as_ptr()).filter(|_| region.prot() & both == both);
            let Some(begin) = begin else {
                return Err(Error::new(
                    ErrorKind::AccessDenied,
                    "the region is not mapped for reading and writing",
                )
                .with_operation("register guest memory")
                .with_hint("map it with PROT_READ and PROT_WRITE"));
            };
            let len = region.size();
            // SAFETY: the region is mapped for reading and writing while the owner lives. The guest and other
            // code of this process share it, and access it by volatile accesses.
            Ok(unsafe { Self::from_shared(begin, len, region) })
        }
    }

    #[cfg(test)]
    mod tests {
        use vm_memory::{Bytes, GuestAddress, MmapRegion};

        use super::*;
        use crate::reference::doc_engine;
        use crate::{DmaEngineExt, MemoryRequest, QueueOptions};

        #[test]
        fn a_device_copies_to_guest_memory() {
            let engine = doc_engine();
            let region = MmapRegion::new(8192).expect("mapped");
            let region: Arc<GuestRegionMmap> =
                Arc::new(GuestRegionMmap::new(region, GuestAddress(0x1000)).expect("in range"));
            let memory = HostMemory::from_guest_region(Arc::clone(&region)).expect("writable");
            let window = engine.register_window(memory, &MemoryRequest::new(0)).expect("registered");
            assert_eq!(window.len(), 8192);
            let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
            let mut source = engine.allocate(100).expect("memory");
            source.fill(7);
            queue.copy(source, window.slice(4000..4100)).expect("accepted").wait().expect("done");
            let mut bytes = [0; 102];
            region.read_slice(&mut bytes, vm_memory::MemoryRegionAddress(3999)).expect("in range");
            assert!(bytes[0] == 0 && bytes[1..101] == [7; 100] && bytes[101] == 0);
            drop(window);
            assert_eq!(Arc::strong_count(&region), 1, "dropping the window has deregistered the region");
        }

        #[test]
        fn a_region_that_may_not_be_written_is_refused() {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let region = MmapRegion::build(None, 4096, libc::PROT_READ, flags).expect("mapped");
            let region: GuestRegionMmap = GuestRegionMmap::new(region, GuestAddress(0)).expect("in range");
            let e = HostMemory::from_guest_region(Arc::new(region)).expect_err("read-only");
            assert!(e.kind() == ErrorKind::AccessDenied && !e.hint().is_empty(), "{e}");
        }
    }
}
