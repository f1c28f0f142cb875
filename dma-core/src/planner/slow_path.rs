//! [`slow_path`]: calls that leave a fast path's values in registers.

use std::mem::MaybeUninit;

/// Returns `call(input)`, out of line, for the rare case at the end of a fast path.
///
/// A call writes its result to memory. Were that the memory of the fast path's own result, a transfer would
/// be put together there and moved from there: loads that span several recent stores, a dozen cycles each. So
/// the result comes with bytes that the caller drops, because the compiler does not see through that.
#[inline]
pub(crate) fn slow_path<T, R>(input: T, call: impl FnOnce(T) -> R) -> R {
    #[cold]
    #[inline(never)]
    fn out_of_line<T, R>(input: T, call: impl FnOnce(T) -> R) -> (R, MaybeUninit<u64>) {
        (call(input), MaybeUninit::uninit())
    }
    out_of_line(input, call).0
}
