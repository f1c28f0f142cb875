//! Calls of the driver that copy.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;

use crate::driver::{Address, CUmemcpyAttributes, Driver, Handle, ORDER_STREAM};
use crate::timings::EventPair;

/// Maximum number of copies in one call of the driver. On an H200 with driver 580.159, 4,096 copies of 8 KiB
/// from host to device reach 17.2 GB/s in calls of 256, and 3.5 to 5.7 GB/s in one call (`tests/hardware.rs`
/// measures these rates).
const CALL_LEN: usize = 256;

/// Makes calls of the driver between two records of events, if a pair is given. Sets `is_recorded` if both
/// were recorded. Returns the result of the calls, which are made also if an event cannot be recorded.
///
/// # Safety
///
/// The context is current. The events and the stream belong to it.
pub(crate) unsafe fn between(
    driver: &Driver,
    pair: Option<EventPair>,
    stream: Handle,
    is_recorded: &mut bool,
    calls: impl FnOnce() -> c_int,
) -> c_int {
    let Some(EventPair { before, after }) = pair else { return calls() };
    // SAFETY: the caller guarantees that the event and the stream exist.
    let began = unsafe { (driver.cuEventRecord)(before, stream) };
    let code = calls();
    if began == 0 && code == 0 {
        // SAFETY: the caller guarantees that the event and the stream exist.
        *is_recorded = unsafe { (driver.cuEventRecord)(after, stream) } == 0;
    }
    code
}

/// Copies all entries of the arrays, by calls of [`CALL_LEN`] entries if `is_batch` and the driver has
/// batches. Adds the number of accepted copies to `taken`.
///
/// # Safety
///
/// The arrays have the same length, at least 1, and name memory that the device reaches. The context is
/// current, and the stream belongs to it.
pub(crate) unsafe fn copy(
    driver: &Driver,
    dsts: &mut [Address],
    srcs: &mut [Address],
    lens: &mut [usize],
    stream: Handle,
    is_batch: bool,
    taken: &mut usize,
) -> c_int {
    let calls = dsts.chunks_mut(CALL_LEN).zip(srcs.chunks_mut(CALL_LEN)).zip(lens.chunks_mut(CALL_LEN));
    for ((dsts, srcs), lens) in calls {
        let number = dsts.len();
        // Stream order, because earlier transfers of the stream may write the sources of these copies.
        let mut attributes = CUmemcpyAttributes { order: ORDER_STREAM, src: [0; 2], dst: [0; 2], flags: 0 };
        let attributes = &raw mut attributes;
        let mut first = 0_usize;
        let first = &raw mut first;
        let (dst, src, len) = (dsts.as_mut_ptr(), srcs.as_mut_ptr(), lens.as_mut_ptr());
        let code = match (driver.cuMemcpyBatchAsync_v2, driver.cuMemcpyBatchAsync) {
            (Some(batch), _) if is_batch && number > 1 => {
                // SAFETY: the chunks have `number` entries each, of memory that the device reaches;
                // `attributes` and `first` have one entry. The caller made the context of the stream current.
                unsafe { batch(dst, src, len, number, attributes, first, 1, stream) }
            }
            (None, Some(batch)) if is_batch && number > 1 => {
                let mut failed = 0;
                // SAFETY: the chunks have `number` entries each, of memory that the device reaches;
                // `attributes` and `first` have one entry, and `failed` is valid for the write. The caller
                // made the context of the stream current.
                unsafe { batch(dst, src, len, number, attributes, first, 1, &raw mut failed, stream) }
            }
            _ => {
                let mut entries = dsts.iter().zip(&*srcs).zip(&*lens);
                let copied = entries.try_for_each(|((dst, src), len)| {
                    // SAFETY: the entry names memory that the device reaches, and the caller made the context
                    // of the stream current.
                    let code = unsafe { (driver.cuMemcpyAsync)(*dst, *src, *len, stream) };
                    *taken += usize::from(code == 0);
                    if code == 0 { Ok(()) } else { Err(code) }
                });
                match copied {
                    Ok(()) => continue,
                    Err(code) => code,
                }
            }
        };
        if code != 0 {
            return code;
        }
        *taken += number;
    }
    0
}
