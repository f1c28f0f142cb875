//! [`Answer`]: the result of an operation.

use crate::Completion;

mod sealed {
    pub trait Sealed {}
}

/// The result of an operation: nothing (`()`), a CRC-32C (`u32`), or the offset of the first byte that
/// differs (`Option<usize>`; `None` if the bytes are equal).
pub trait Answer: sealed::Sealed + 'static {
    /// The type that a transfer returns: the pair of operands and result, or only the operands if the
    /// operation has no result.
    type With<T>;

    #[doc(hidden)]
    fn with<T>(operands: T, result: u64) -> Self::With<T>;
}

impl sealed::Sealed for () {}
impl Answer for () {
    type With<T> = T;
    #[inline]
    fn with<T>(operands: T, _: u64) -> T {
        operands
    }
}

impl sealed::Sealed for u32 {}
impl Answer for u32 {
    type With<T> = (T, Self);
    fn with<T>(operands: T, result: u64) -> (T, Self) {
        (operands, result as Self)
    }
}

impl sealed::Sealed for Option<usize> {}
impl Answer for Option<usize> {
    type With<T> = (T, Self);
    fn with<T>(operands: T, result: u64) -> (T, Self) {
        (operands, (result != Completion::EQUAL).then_some(result as usize))
    }
}
