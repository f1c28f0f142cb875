//! [`slow_path`]: calls a function such that the values of a fast path can stay in registers.

use std::mem::MaybeUninit;

/// Returns `call(input)`. The call is not inlined. Use it for the rare case at the end of a fast path.
///
/// A call writes its result to memory. If the fast path used the same memory for its own result, it would
/// build a transfer there and then move it, with loads that span several recent stores (a dozen cycles each).
/// The additional bytes in the result prevent the compiler from sharing the memory.
#[inline]
pub(crate) fn slow_path<T, R>(input: T, call: impl FnOnce(T) -> R) -> R {
    #[cold]
    #[inline(never)]
    fn out_of_line<T, R>(input: T, call: impl FnOnce(T) -> R) -> (R, MaybeUninit<u64>) {
        (call(input), MaybeUninit::uninit())
    }
    out_of_line(input, call).0
}
