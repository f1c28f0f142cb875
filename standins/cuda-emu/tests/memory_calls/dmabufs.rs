//! Tests of dma-bufs of device memory.

use std::fs::File;
use std::io::Seek;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use super::*;

const PAGE: u64 = 4096;
const LEN: usize = 10_000;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF: c_int = 1;

fn dmabuf(addr: u64, len: u64, kind: c_int, flags: u64) -> Result<File, c_int> {
    let mut fd: c_int = -1;
    match cuMemGetHandleForAddressRange((&raw mut fd).cast(), addr, len as usize, kind, flags) {
        // SAFETY: the call has made the descriptor, which only this value owns.
        0 => Ok(unsafe { File::from_raw_fd(fd) }),
        code => Err(code),
    }
}

#[test]
fn a_dma_buf_is_the_pages_of_an_allocation() {
    start();
    // Each page may have bytes of several allocations.
    let [before, memory, behind] = [(); 3].map(|()| made(|addr| cuMemAlloc_v2(addr, LEN)));
    let first = memory / PAGE * PAGE;
    let len = (memory + LEN as u64).next_multiple_of(PAGE) - first;
    for (addr, value) in [(before, 1), (memory, 7), (behind, 2)] {
        assert_eq!(cuMemsetD8_v2(addr, value, LEN), 0);
    }
    for flags in [0, 1] {
        let mut file = dmabuf(first, len, DMA_BUF, flags).unwrap();
        let at = file.stream_position().unwrap() + (memory - first);
        let mut found = vec![0; LEN];
        file.read_exact_at(&mut found, at).unwrap();
        assert_eq!(found, [7; LEN]);
        file.write_all_at(&[9; 100], at + 50).unwrap();
        assert_eq!(read(memory + 50, 100), [9; 100]);
        assert_eq!(cuMemsetD8_v2(memory, 7, LEN), 0);
        assert!(file.set_len(0).is_err(), "the memory would end");
    }
    assert_eq!((read(before, LEN), read(behind, LEN)), (vec![1; LEN], vec![2; LEN]));

    let of_pool = made(|addr| cuMemAllocAsync(addr, LEN, 0));
    for (addr, len, kind, flags) in [
        (first + 1, len, DMA_BUF, 0),
        (first, len - 1, DMA_BUF, 0),
        (first, 0, DMA_BUF, 0),
        (first, len + (16 << 30), DMA_BUF, 0),
        (first, u64::MAX / PAGE * PAGE, DMA_BUF, 0),
        (first, len, 2, 0),
        (first, len, DMA_BUF, 2),
        (PAGE, PAGE, DMA_BUF, 0),
        (of_pool.next_multiple_of(PAGE), PAGE, DMA_BUF, 0),
    ] {
        assert_eq!(
            dmabuf(addr, len, kind, flags).unwrap_err(),
            INVALID_VALUE,
            "{addr:x} {len} {kind} {flags}"
        );
    }
    assert_eq!(
        cuMemGetHandleForAddressRange(ptr::null_mut(), first, len as usize, DMA_BUF, 0),
        INVALID_VALUE
    );
    let mut supported = 0;
    assert_eq!((cuDeviceGetAttribute(&raw mut supported, 124, 0), supported), (0, 1));
    for addr in [before, memory, behind] {
        assert_eq!(cuMemFree_v2(addr), 0);
    }
    assert_eq!(cuMemFreeAsync(of_pool, 0), 0);
    assert_eq!(dmabuf(first, len, DMA_BUF, 0).unwrap_err(), INVALID_VALUE, "the memory was freed");
}
