//! Copies and fills.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint};

use crate::c_abi::{In, Out, c_calls};
use crate::codes::{Code, Outcome, require};
use crate::driver::{self, Driver, lock};
use crate::memory::AllocationKind;

use super::device::MAX_PITCH;

/// `CUmemcpyAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyAttributes {
    order: c_int,
    src: [c_int; 2],
    dst: [c_int; 2],
    flags: c_uint,
}

/// Values of `order`: when the source is read (1 in stream order, 2 during the call, 3 at any time).
const ORDERS: std::ops::RangeInclusive<c_int> = 1..=3;

/// The required place of one side of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopySide {
    Any,
    Device,
}

/// Queues a copy. If one side is pageable memory, waits for the end of the copy.
fn copy(to: (u64, CopySide), from: (u64, CopySide), len: usize, stream: u64) -> Outcome {
    let mut driver = lock()?;
    driver.current()?;
    for (addr, side) in [to, from] {
        let is_device = || {
            let kind = driver.memory.find(addr).map(|found| found.kind);
            kind.is_some_and(|kind| kind.is_on_device() || kind == AllocationKind::Managed)
        };
        require(side != CopySide::Device || len == 0 || is_device(), Code::INVALID_VALUE)?;
    }
    let pageable = driver.copy(stream, to.0, from.0, len as u64)?;
    if pageable { driver::wait_stream(driver, stream) } else { Ok(()) }
}

/// Copies, and waits for the end of the copy.
fn copy_now(to: (u64, CopySide), from: (u64, CopySide), len: usize) -> Outcome {
    copy(to, from, len, 0)?;
    driver::wait_stream(lock()?, 0)
}

/// # Safety
///
/// C passes `count` addresses and lengths, and `kinds` attributes and indices.
#[expect(clippy::too_many_arguments, reason = "as C's")]
unsafe fn batch(
    dsts: In<u64>,
    srcs: In<u64>,
    lens: In<usize>,
    count: usize,
    attributes: In<CopyAttributes>,
    indices: In<usize>,
    kinds: usize,
    stream: u64,
) -> Outcome {
    let mut driver = lock()?;
    driver.current()?;
    require(count != 0 && kinds != 0 && kinds <= count, Code::INVALID_VALUE)?;
    // SAFETY: the caller guarantees the length.
    let dsts = unsafe { dsts.slice(count) }?;
    // SAFETY: the caller guarantees the length.
    let srcs = unsafe { srcs.slice(count) }?;
    // SAFETY: the caller guarantees the length.
    let lens = unsafe { lens.slice(count) }?;
    // SAFETY: the caller guarantees the length.
    let attributes = unsafe { attributes.slice(kinds) }?;
    // SAFETY: the caller guarantees the length.
    let indices = unsafe { indices.slice(kinds) }?;
    let rising = indices[0] == 0 && indices.is_sorted_by(|a, b| a < b) && indices[kinds - 1] < count;
    require(
        rising && attributes.iter().all(|attributes| ORDERS.contains(&attributes.order)),
        Code::INVALID_VALUE,
    )?;
    let copies = (0..count).map(|i| (dsts[i], srcs[i], lens[i] as u64));
    let pageable = driver.copy_batch(stream, copies)?;
    if pageable { driver::wait_stream(driver, stream) } else { Ok(()) }
}

/// `CUDA_MEMCPY2D`: one side is an address of the kind that `memory` names.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsSide {
    x: usize,
    y: usize,
    memory: c_int,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsCopy {
    src: RowsSide,
    dst: RowsSide,
    width: usize,
    height: usize,
}

const _: () = assert!(size_of::<RowsCopy>() == 128);

impl RowsSide {
    /// Returns the address of the first row, and the pitch.
    fn start(&self, driver: &Driver, width: usize, height: usize) -> Outcome<(u64, u64)> {
        /// Values of `CUmemorytype`.
        const HOST: c_int = 1;
        const DEVICE: c_int = 2;
        const ARRAY: c_int = 3;
        const UNIFIED: c_int = 4;
        let base = match self.memory {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            ARRAY => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        };
        // A pitch of 0 is valid for one row, because no other row needs it.
        let end = self.x.checked_add(width).ok_or(Code::INVALID_VALUE)?;
        let single = height == 1 && self.y == 0 && self.pitch == 0;
        require(self.pitch <= MAX_PITCH && (self.pitch >= end || single), Code::INVALID_VALUE)?;
        let pitch = self.pitch as u64;
        let skip = pitch.checked_mul(self.y as u64).and_then(|skip| skip.checked_add(self.x as u64));
        let addr = skip.and_then(|skip| base.checked_add(skip)).ok_or(Code::INVALID_VALUE)?;
        let on_device = driver.memory.find(addr).map(|found| found.kind);
        let fits = match self.memory {
            HOST => !on_device.is_some_and(AllocationKind::is_on_device),
            DEVICE => on_device.is_some(),
            _ => true,
        };
        if fits { Ok((addr, pitch)) } else { Err(Code::INVALID_VALUE) }
    }
}

/// Queues a copy of rows. If one side is pageable memory, waits for the end of the copy.
fn copy_rows(copy: &In<RowsCopy>, stream: u64) -> Outcome {
    let RowsCopy { src, dst, width, height } = copy.value()?;
    let mut driver = lock()?;
    driver.current()?;
    driver.stream_of(stream)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let (to, from) = (dst.start(&driver, width, height)?, src.start(&driver, width, height)?);
    let pageable = driver.copy_rows(stream, to, from, width as u64, height as u64)?;
    if pageable { driver::wait_stream(driver, stream) } else { Ok(()) }
}

/// Copies rows, and waits for the end of the copy.
fn copy_rows_now(copy: &In<RowsCopy>) -> Outcome {
    copy_rows(copy, 0)?;
    driver::wait_stream(lock()?, 0)
}

/// Queues a fill of `height` rows of `width` elements of `size` bytes.
fn fill_rows(
    dst: u64,
    pitch: usize,
    value: u32,
    size: u32,
    (width, height): (usize, usize),
    stream: u64,
) -> Outcome {
    let mut driver = lock()?;
    driver.current()?;
    let row = (width as u64).checked_mul(size.into()).ok_or(Code::INVALID_VALUE)?;
    let pitch = pitch as u64;
    let aligned =
        dst.is_multiple_of(size.into()) && (height <= 1 || pitch.is_multiple_of(size.into()) && pitch >= row);
    require(aligned, Code::INVALID_VALUE)?;
    driver.fill_rows(stream, dst, pitch, repeated(value, size), row, height as u64)
}

/// Fills rows, and waits for the end of the fill.
fn fill_rows_now(dst: u64, pitch: usize, value: u32, size: u32, area: (usize, usize)) -> Outcome {
    fill_rows(dst, pitch, value, size, area, 0)?;
    driver::wait_stream(lock()?, 0)
}

/// Returns eight bytes that repeat a value of 1, 2 or 4 bytes.
const fn repeated(value: u32, len: u32) -> u64 {
    match len {
        1 => value as u64 * 0x0101_0101_0101_0101,
        2 => value as u64 * 0x0001_0001_0001_0001,
        _ => value as u64 * 0x0000_0001_0000_0001,
    }
}

fn fill(dst: u64, value: u32, width: u32, number: usize, stream: u64) -> Outcome {
    let mut driver = lock()?;
    driver.current()?;
    let len = (number as u64).checked_mul(width.into()).ok_or(Code::INVALID_VALUE)?;
    require(dst.is_multiple_of(width.into()), Code::INVALID_VALUE)?;
    driver.fill(stream, dst, repeated(value, width), len)
}

fn fill_now(dst: u64, value: u32, width: u32, number: usize) -> Outcome {
    fill(dst, value, width, number, 0)?;
    driver::wait_stream(lock()?, 0)
}

c_calls! {
    fn cuMemcpy(dst: u64, src: u64, len: usize) { copy_now((dst, CopySide::Any), (src, CopySide::Any), len) }
    fn cuMemcpyHtoD_v2(dst: u64, src: u64, len: usize) { copy_now((dst, CopySide::Device), (src, CopySide::Any), len) }
    fn cuMemcpyDtoH_v2(dst: u64, src: u64, len: usize) { copy_now((dst, CopySide::Any), (src, CopySide::Device), len) }
    fn cuMemcpyDtoD_v2(dst: u64, src: u64, len: usize) { copy_now((dst, CopySide::Device), (src, CopySide::Device), len) }

    fn cuMemcpyPeer(dst: u64, to: u64, src: u64, from: u64, len: usize) {
        contexts(to, from)?;
        copy_now((dst, CopySide::Any), (src, CopySide::Any), len)
    }

    fn cuMemcpyAsync(dst: u64, src: u64, len: usize, stream: u64) {
        copy((dst, CopySide::Any), (src, CopySide::Any), len, stream)
    }

    fn cuMemcpyHtoDAsync_v2(dst: u64, src: u64, len: usize, stream: u64) {
        copy((dst, CopySide::Device), (src, CopySide::Any), len, stream)
    }

    fn cuMemcpyDtoHAsync_v2(dst: u64, src: u64, len: usize, stream: u64) {
        copy((dst, CopySide::Any), (src, CopySide::Device), len, stream)
    }

    fn cuMemcpyDtoDAsync_v2(dst: u64, src: u64, len: usize, stream: u64) {
        copy((dst, CopySide::Device), (src, CopySide::Device), len, stream)
    }

    fn cuMemcpyPeerAsync(dst: u64, to: u64, src: u64, from: u64, len: usize, stream: u64) {
        contexts(to, from)?;
        copy((dst, CopySide::Any), (src, CopySide::Any), len, stream)
    }

    /// The variant of CUDA 12.8.
    fn cuMemcpyBatchAsync(
        dsts: In<u64>,
        srcs: In<u64>,
        lens: In<usize>,
        count: usize,
        attributes: In<CopyAttributes>,
        indices: In<usize>,
        kinds: usize,
        failed: Out<usize>,
        stream: u64,
    ) {
        // SAFETY: C passes arrays of these lengths.
        let outcome = unsafe { batch(dsts, srcs, lens, count, attributes, indices, kinds, stream) };
        if outcome.is_err() {
            failed.put_if(usize::MAX);
        }
        outcome
    }

    /// The variant of CUDA 13.0.
    fn cuMemcpyBatchAsync_v2(
        dsts: In<u64>,
        srcs: In<u64>,
        lens: In<usize>,
        count: usize,
        attributes: In<CopyAttributes>,
        indices: In<usize>,
        kinds: usize,
        stream: u64,
    ) {
        // SAFETY: C passes arrays of these lengths.
        unsafe { batch(dsts, srcs, lens, count, attributes, indices, kinds, stream) }
    }

    fn cuMemsetD8_v2(dst: u64, value: u8, number: usize) { fill_now(dst, value.into(), 1, number) }
    fn cuMemsetD16_v2(dst: u64, value: u16, number: usize) { fill_now(dst, value.into(), 2, number) }
    fn cuMemsetD32_v2(dst: u64, value: u32, number: usize) { fill_now(dst, value, 4, number) }
    fn cuMemsetD8Async(dst: u64, value: u8, number: usize, stream: u64) { fill(dst, value.into(), 1, number, stream) }
    fn cuMemsetD16Async(dst: u64, value: u16, number: usize, stream: u64) { fill(dst, value.into(), 2, number, stream) }
    fn cuMemsetD32Async(dst: u64, value: u32, number: usize, stream: u64) { fill(dst, value, 4, number, stream) }

    fn cuMemsetD2D8_v2(dst: u64, pitch: usize, value: u8, width: usize, height: usize) {
        fill_rows_now(dst, pitch, value.into(), 1, (width, height))
    }

    fn cuMemsetD2D16_v2(dst: u64, pitch: usize, value: u16, width: usize, height: usize) {
        fill_rows_now(dst, pitch, value.into(), 2, (width, height))
    }

    fn cuMemsetD2D32_v2(dst: u64, pitch: usize, value: u32, width: usize, height: usize) {
        fill_rows_now(dst, pitch, value, 4, (width, height))
    }

    fn cuMemsetD2D8Async(dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64) {
        fill_rows(dst, pitch, value.into(), 1, (width, height), stream)
    }

    fn cuMemsetD2D16Async(dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: u64) {
        fill_rows(dst, pitch, value.into(), 2, (width, height), stream)
    }

    fn cuMemsetD2D32Async(dst: u64, pitch: usize, value: u32, width: usize, height: usize, stream: u64) {
        fill_rows(dst, pitch, value, 4, (width, height), stream)
    }

    fn cuMemcpy2D_v2(copy: In<RowsCopy>) { copy_rows_now(&copy) }
    fn cuMemcpy2DUnaligned_v2(copy: In<RowsCopy>) { copy_rows_now(&copy) }
    fn cuMemcpy2DAsync_v2(copy: In<RowsCopy>, stream: u64) { copy_rows(&copy, stream) }

    fn cuMemcpyWithAttributesAsync(dst: u64, src: u64, len: usize, attributes: In<CopyAttributes>, stream: u64) {
        require(ORDERS.contains(&attributes.value()?.order), Code::INVALID_VALUE)?;
        copy((dst, CopySide::Any), (src, CopySide::Any), len, stream)
    }
}

/// Checks that both contexts exist.
fn contexts(to: u64, from: u64) -> Outcome {
    let driver = lock()?;
    driver.context(to)?;
    driver.context(from).map(|_| ())
}
