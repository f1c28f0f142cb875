//! [`slow_path`]: calls a function without forcing a fast path's values into memory.

use std::mem::MaybeUninit;

/// Returns `call(input)`. The call is out of line, for the rare case at the end of a fast path.
///
/// A call writes its result to memory. If the fast path shared that memory for its own result, it would
/// assemble a transfer there and then move it, with loads that span several recent stores (a dozen cycles
/// each). The extra bytes in the result keep the compiler from sharing the memory.
#[inline]
pub(crate) fn slow_path<T, R>(input: T, call: impl FnOnce(T) -> R) -> R {
    #[cold]
    #[inline(never)]
    fn out_of_line<T, R>(input: T, call: impl FnOnce(T) -> R) -> (R, MaybeUninit<u64>) {
        (call(input), MaybeUninit::uninit())
    }
    out_of_line(input, call).0
}
