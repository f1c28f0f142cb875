//! Occupancy.

use super::*;

declare! {
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: usize, threads: c_int, dynamic: usize,
    );
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, function: usize, threads: c_int, dynamic: usize, flags: c_uint,
    );
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int, block: *mut c_int, function: usize, shared_of: Option<extern "C" fn(c_int) -> usize>,
        dynamic: usize, limit: c_int,
    );
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int, block: *mut c_int, function: usize, shared_of: Option<extern "C" fn(c_int) -> usize>,
        dynamic: usize, limit: c_int, flags: c_uint,
    );
    fn cuOccupancyAvailableDynamicSMemPerBlock(len: *mut usize, function: usize, blocks: c_int, threads: c_int);
}

/// A kernel with a number of registers, bytes of shared memory, and more directives.
fn kernel(registers: u32, shared: u32, directives: &str) -> usize {
    let shared = if shared > 0 { format!(".shared .b8 shared[{shared}];") } else { String::new() };
    let text = format!(
        ".version 7.3\n.target sm_70\n.address_size 64\n.visible .entry k()\n{directives}\n{{\n{shared}\n.reg .b32 %r<{registers}>;\nret;\n}}\n"
    );
    function(&text, "k")
}

fn blocks(kernel: usize, threads: c_int, dynamic: usize) -> Result<c_int, c_int> {
    let (mut blocks, mut same) = (-1, -1);
    let code = cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, kernel, threads, dynamic);
    let with_flags =
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&raw mut same, kernel, threads, dynamic, 1);
    assert_eq!((code, blocks), (with_flags, same));
    if code == 0 { Ok(blocks) } else { Err(code) }
}

fn best(
    kernel: usize,
    shared_of: Option<extern "C" fn(c_int) -> usize>,
    dynamic: usize,
    limit: c_int,
) -> (c_int, c_int) {
    let (mut grid, mut block) = (-1, -1);
    let found =
        cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, kernel, shared_of, dynamic, limit);
    assert_eq!(found, 0);
    (grid, block)
}

/// The numbers are those of NVIDIA's table for compute capability 9.0: 2048 threads, 32 blocks, 65536
/// registers and 228 KiB of shared memory, of which each block takes 1 KiB more.
#[test]
fn the_limits_of_a_multiprocessor_bound_its_blocks() {
    start(0);
    for (registers, shared, threads, dynamic, expected) in [
        (32, 0, 256, 0, 8),
        (32, 0, 1024, 0, 2),
        (32, 0, 1, 0, 32),
        (32, 0, 33, 0, 32),
        (32, 0, 96, 0, 21),
        (33, 0, 256, 0, 6),
        (64, 0, 256, 0, 4),
        (128, 0, 256, 0, 2),
        (128, 0, 1024, 0, 0),
        (255, 0, 64, 0, 4),
        (16, 48 << 10, 128, 0, 4),
        (16, 1, 128, 48 << 10, 0),
        (16, 0, 128, 48 << 10, 4),
        (16, 0, 128, 16 << 10, 13),
        (16, 0, 128, (48 << 10) + 1, 0),
        (16, 0, 1025, 0, 0),
    ] {
        let case = (registers, shared, threads, dynamic);
        assert_eq!(blocks(kernel(registers, shared, ""), threads, dynamic), Ok(expected), "{case:?}");
    }
    assert_eq!(blocks(kernel(16, 0, ".maxntid 128, 1, 1"), 129, 0), Ok(0));
    assert_eq!(blocks(kernel(16, 0, ".reqntid 64, 1, 1"), 32, 0), Ok(0));
    assert_eq!(blocks(kernel(16, 0, ".reqntid 64, 1, 1"), 64, 0), Ok(32));
    for threads in [0, -1] {
        assert_eq!(blocks(kernel(16, 0, ""), threads, 0), Err(1));
    }
    assert_eq!(blocks(0x1234_5670, 32, 0), Err(400));
    let mut value = 0;
    let flags = 2;
    let refused =
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&raw mut value, kernel(16, 0, ""), 32, 0, flags);
    assert_eq!(refused, 1);
    for (attribute, expected) in
        [(8, 48 << 10), (12, 65_536), (39, 2048), (81, 228 << 10), (82, 65_536), (106, 32), (111, 1024)]
    {
        assert_eq!(cuDeviceGetAttribute(&raw mut value, attribute, 0), 0);
        assert_eq!(value, expected, "attribute {attribute}");
    }
}

/// Shared memory of 32 bytes for each thread.
extern "C" fn shared_of(threads: c_int) -> usize {
    32 * threads as usize
}

#[test]
fn the_best_block_occupies_the_device() {
    start(0);
    assert_eq!(best(kernel(32, 0, ""), None, 0, 0), (264, 1024));
    assert_eq!(best(kernel(32, 0, ""), None, 0, 256), (1056, 256));
    assert_eq!(best(kernel(32, 0, ""), None, 0, 100), (132 * 32, 64), "16 blocks of 100 threads are fewer");
    assert_eq!(best(kernel(32, 0, ""), None, 0, 50), (132 * 32, 50), "the limit itself");
    assert_eq!(best(kernel(40, 0, ""), None, 0, 0), (132 * 2, 768), "48 warps of 40 registers");
    assert_eq!(best(kernel(128, 0, ""), None, 0, 0), (132, 512));
    assert_eq!(best(kernel(16, 0, ".reqntid 64, 1, 1"), None, 0, 0), (132 * 32, 64));
    // Two blocks of 1024 threads take 66 KiB. A block of 48 KiB leaves room for four.
    assert_eq!(best(kernel(16, 0, ""), Some(shared_of), 0, 0), (264, 1024));
    assert_eq!(best(kernel(16, 0, ""), None, 48 << 10, 256), (132 * 4, 256));
    assert_eq!(best(kernel(16, 0, ""), None, 64 << 10, 0), (0, 0), "no block has so much");
    let (mut grid, mut block) = (0, 0);
    let kernel = kernel(16, 0, "");
    let mut with_flags = |limit, flags| {
        cuOccupancyMaxPotentialBlockSizeWithFlags(
            &raw mut grid,
            &raw mut block,
            kernel,
            None,
            0,
            limit,
            flags,
        )
    };
    assert_eq!([with_flags(0, 0), with_flags(-1, 0), with_flags(0, 4)], [0, 1, 1]);
}

#[test]
fn the_shared_memory_that_a_number_of_blocks_leaves() {
    start(0);
    let available = |kernel, blocks, threads| {
        let mut len = 0;
        match cuOccupancyAvailableDynamicSMemPerBlock(&raw mut len, kernel, blocks, threads) {
            0 => Ok(len),
            code => Err(code),
        }
    };
    let small = kernel(16, 512, "");
    for number in 1..=32 {
        let len = available(small, number, 64).unwrap();
        assert!(blocks(small, 64, len).unwrap() >= number, "{number} blocks of {len} bytes");
        let more = blocks(small, 64, len + 1).unwrap();
        assert!(more < number, "{number} blocks of {len} bytes leave room for no more");
    }
    assert_eq!(available(small, 33, 64), Err(1));
    assert_eq!(available(small, 0, 64), Err(1));
    assert_eq!(available(small, 3, 1024), Err(1));
}
