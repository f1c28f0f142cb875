//! Memory into which files are read, and from which files are written.

use std::ptr::NonNull;

use dma_core::{Buffer, BufferMut, Error, ErrorKind, Region, Result, Window};

mod sealed {
    pub trait View: Send + 'static {
        fn region(&self) -> &super::Region;
        fn offset(&self) -> usize;
        fn len(&self) -> usize;
        /// Fails if the CPU may not write the bytes.
        fn check_writable(&self) -> super::Result<()>;
    }
}
use sealed::View;

/// Memory from which a file can be written: [`BufferMut`], [`Buffer`], [`Window`].
pub trait FileSource: View {}

/// Memory into which a file can be read: [`BufferMut`], [`Window`].
pub trait FileDestination: View {}

macro_rules! view {
    ($($view:ty, $check_writable:expr);+) => {$(
        impl View for $view {
            fn region(&self) -> &Region {
                <$view>::region(self)
            }
            fn offset(&self) -> usize {
                <$view>::offset(self)
            }
            fn len(&self) -> usize {
                <$view>::len(self)
            }
            fn check_writable(&self) -> Result<()> {
                $check_writable(self)
            }
        }
    )+};
}
// Writing 0 bytes checks the window's rights without changing its bytes.
view!(BufferMut, |_| Ok(()); Buffer, |_| Ok(()); Window, |window: &Self| window.write_at(0, &[]));

impl FileSource for BufferMut {}
impl FileSource for Buffer {}
impl FileSource for Window {}
impl FileDestination for BufferMut {}
impl FileDestination for Window {}

/// Returns the address and number of the view's bytes.
pub(crate) fn memory<T: View>(view: &T) -> Result<(NonNull<u8>, usize)> {
    let len = view.len();
    if len == 0 {
        return Ok((NonNull::dangling(), 0));
    }
    let info = view.region().as_raw().info();
    let Some(begin) = info.cpu else {
        return Err(Error::new(ErrorKind::Unsupported, "the CPU cannot reach this memory")
            .with_hint("read the file into host memory, and copy it to the device by its engine"));
    };
    debug_assert!(view.offset() + len <= info.len);
    // The view lies within the region, so the sum is not null.
    let begin = begin.as_ptr().wrapping_add(view.offset());
    Ok((NonNull::new(begin).unwrap_or(NonNull::dangling()), len))
}
