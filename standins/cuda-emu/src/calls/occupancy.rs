//! Occupancy: the number of blocks of a kernel that one multiprocessor runs at a time.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint};

use crate::c_abi::{Out, c_calls};
use crate::codes::{Code, Outcome, require};
use crate::driver::{Function, SHARED_MAX, lock};

pub(super) const WARP: u32 = 32;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
pub(super) const MULTIPROCESSORS: c_int = 132;
/// Limits of a multiprocessor of compute capability 9.0, as NVIDIA's programming guide lists them.
pub(super) const THREADS: u32 = 2048;
pub(super) const BLOCKS: u32 = 32;
pub(super) const REGISTERS: u32 = 64 << 10;
pub(super) const SHARED: u32 = 228 << 10;
/// Shared memory that the system takes of each block.
pub(super) const SHARED_RESERVED: u32 = 1 << 10;
/// Units in which registers of a warp and shared memory of a block are allocated.
const REGISTERS_UNIT: u32 = 256;
const SHARED_UNIT: u32 = 128;
/// Parts of a multiprocessor, each with its share of the registers. A warp stays in one part.
const PARTS: u32 = 4;

/// `CUoccupancyB2DSize`: the dynamic shared memory of a block of a number of threads.
type SharedOf = Option<unsafe extern "C" fn(c_int) -> usize>;

fn kernel(function: u64) -> Outcome<Function> {
    let driver = lock()?;
    driver.current()?;
    driver.modules.function(function).cloned()
}

fn check_flags(flags: c_uint) -> Outcome {
    /// `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`, which concerns older devices.
    const DISABLE_CACHING_OVERRIDE: c_uint = 1;
    require(flags & !DISABLE_CACHING_OVERRIDE == 0, Code::INVALID_VALUE)
}

/// Returns the number of blocks that the threads and registers of a multiprocessor admit.
fn blocks_by_threads(function: &Function, threads: u32) -> u32 {
    let kernel = &function.kernel;
    if threads > kernel.threads_max || kernel.threads_required.is_some_and(|required| required != threads) {
        return 0;
    }
    let registers = u32::from(kernel.register_count().clamp(1, 255)).next_multiple_of(8) * WARP;
    let by_registers = REGISTERS / PARTS / registers.next_multiple_of(REGISTERS_UNIT) * PARTS;
    let warps = threads.div_ceil(WARP);
    BLOCKS.min((THREADS / WARP).min(by_registers) / warps)
}

/// Returns the number of blocks that run at a time on a multiprocessor.
fn blocks(function: &Function, threads: u32, dynamic: usize) -> u32 {
    let dynamic = match u32::try_from(dynamic) {
        Ok(dynamic) if dynamic <= function.dynamic_shared_max => dynamic,
        _ => return 0,
    };
    // The text of a kernel may declare up to 4 GiB.
    let shared = u64::from(function.kernel.shared) + u64::from(dynamic);
    let shared = shared.next_multiple_of(SHARED_UNIT.into()) + u64::from(SHARED_RESERVED);
    blocks_by_threads(function, threads).min((u64::from(SHARED) / shared) as u32)
}

/// Answers a question for the number of blocks.
fn active_blocks(answer: Out<c_int>, function: u64, threads: c_int, dynamic: usize) -> Outcome {
    answer.check()?;
    let function = kernel(function)?;
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(Code::INVALID_VALUE)?;
    answer.put(blocks(&function, threads, dynamic) as c_int)
}

/// Answers a question for the number of threads of a block with which most threads run at a time, and for
/// the number of blocks that occupy the device. Of several such numbers of threads, returns the greatest.
fn best_block(
    (grid, block): (Out<c_int>, Out<c_int>),
    function: u64,
    shared_of: SharedOf,
    dynamic: usize,
    limit: c_int,
) -> Outcome {
    grid.check()?;
    block.check()?;
    let function = kernel(function)?;
    let limit = match u32::try_from(limit).map_err(|_| Code::INVALID_VALUE)? {
        0 => function.kernel.threads_max,
        limit => limit.min(function.kernel.threads_max),
    };
    let (mut best, mut most) = ((0, 0), 0);
    // Whole warps, and first the limit itself.
    let mut threads = limit;
    while threads > 0 && most < THREADS {
        let dynamic = match shared_of {
            // SAFETY: C passes a function of this type. No lock is held.
            Some(shared_of) => unsafe { shared_of(threads as c_int) },
            None => dynamic,
        };
        let blocks = blocks(&function, threads, dynamic);
        if blocks * threads > most {
            (best, most) = ((blocks, threads), blocks * threads);
        }
        threads = (threads - 1) / WARP * WARP;
    }
    grid.put(best.0 as c_int * MULTIPROCESSORS)?;
    block.put(best.1 as c_int)
}

c_calls! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<c_int>, function: u64, threads: c_int, dynamic: usize) {
        active_blocks(blocks, function, threads, dynamic)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>,
        function: u64,
        threads: c_int,
        dynamic: usize,
        flags: c_uint,
    ) {
        check_flags(flags)?;
        active_blocks(blocks, function, threads, dynamic)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: u64,
        shared_of: SharedOf,
        dynamic: usize,
        limit: c_int,
    ) {
        best_block((grid, block), function, shared_of, dynamic, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: u64,
        shared_of: SharedOf,
        dynamic: usize,
        limit: c_int,
        flags: c_uint,
    ) {
        check_flags(flags)?;
        best_block((grid, block), function, shared_of, dynamic, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(available: Out<usize>, function: u64, blocks: c_int, threads: c_int) {
        available.check()?;
        let function = kernel(function)?;
        let positive = |number| u32::try_from(number).ok().filter(|number| *number > 0).ok_or(Code::INVALID_VALUE);
        let (blocks, threads) = (positive(blocks)?, positive(threads)?);
        require(blocks <= blocks_by_threads(&function, threads), Code::INVALID_VALUE)?;
        let share = (SHARED / blocks).saturating_sub(SHARED_RESERVED) / SHARED_UNIT * SHARED_UNIT;
        available.put(share.min(SHARED_MAX).saturating_sub(function.kernel.shared) as usize)
    }
}
