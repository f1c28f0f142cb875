//! Tests of values that streams write and wait for.

use super::*;

#[test]
fn streams_write_values_and_wait_for_them() {
    start();
    let (stream, gate) = (stream(), Gate::new());
    let device = made(|addr| cuMemAlloc_v2(addr, 64));
    // The value in memory, the given value, and the flags with which the wait ends.
    for (found, value, flags) in [
        (5, 5, &[0, 1, 2, 3][..]),
        (6, 5, &[0, 2, 3]),
        (4, 8, &[3]),
        (u32::MAX, 1, &[2]),
        (1, u32::MAX, &[0, 2]),
    ] {
        // No value ends a wait for a bit that is in none of the two, if one of them has all bits.
        for flag in (0..4).filter(|flag| *flag < 3 || value != u32::MAX) {
            for long in [false, true] {
                let wide = |value: u32| u64::from(value) << 32 | u64::from(value);
                let queued = if long {
                    gate.set(wide(found));
                    cuStreamWaitValue64_v2(stream, gate.0, wide(value), flag)
                } else {
                    // The upper half does not count.
                    gate.set(u64::from(found) | 0x1234_5678 << 32);
                    cuStreamWaitValue32_v2(stream, gate.0, value, flag)
                };
                assert_eq!(queued, 0);
                let ended = cuStreamQuery(stream) == 0;
                assert_eq!(ended, flags.contains(&flag), "{found:#x}, {value:#x}, {flag}, {long}");
                gate.set(if flag == 3 { 0 } else { wide(value) });
                assert_eq!(cuStreamSynchronize(stream), 0);
            }
        }
    }
    gate.set(0);
    assert_eq!(cuStreamWriteValue64_v2(stream, device, u64::MAX - 1, 0), 0);
    assert_eq!(cuStreamWriteValue32_v2(stream, device + 8, 3, 1), 0);
    assert_eq!(cuStreamWriteValue32_v2(stream, gate.0, 9, 0), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(read(device, 12), [[254, 255, 255, 255], [255; 4], [3, 0, 0, 0]].concat());
    assert_eq!(gate.word().load(std::sync::atomic::Ordering::SeqCst), 9);
    // Refused: addresses, flags and streams.
    let local = 0_u64;
    for addr in [0, 4 + 1, device + 2, device + 64, address(&raw const local)] {
        assert_eq!(cuStreamWriteValue32_v2(stream, addr, 1, 0), INVALID_VALUE, "{addr:#x}");
        assert_eq!(cuStreamWaitValue32_v2(stream, addr, 1, 0), INVALID_VALUE, "{addr:#x}");
    }
    assert_eq!(cuStreamWaitValue64_v2(stream, device + 4, 1, 0), INVALID_VALUE);
    assert_eq!(cuStreamWriteValue32_v2(stream, device, 1, 2), INVALID_VALUE);
    assert_eq!(cuStreamWaitValue32_v2(stream, device, 1, 4), INVALID_VALUE);
    assert_eq!(cuStreamWaitValue32_v2(stream, device, 1, 1 << 30), NOT_SUPPORTED);
    assert_eq!(cuStreamWaitValue32_v2(UNKNOWN as usize, device, 1, 0), INVALID_HANDLE);
    assert_eq!(cuMemFree_v2(device), 0);
}

#[test]
fn values_are_written_and_awaited_by_one_call() {
    const WRITE: c_int = 2;
    const WAIT: c_int = 1;
    const WRITE_LONG: c_int = 5;
    const WAIT_LONG: c_int = 4;
    start();
    let (stream, gate) = (stream(), Gate::new());
    let device = made(|addr| cuMemAlloc_v2(addr, 64));
    assert_eq!(cuMemsetD8_v2(device, 0, 64), 0);
    let operation =
        |kind, addr, value| ValueOperation { kind, barrier: 0, addr, value, flags: 0, rest: [0; 2] };
    let submit = |operations: &[ValueOperation]| {
        cuStreamBatchMemOp_v2(stream, operations.len() as c_uint, operations.as_ptr(), 0)
    };
    let barrier = ValueOperation { barrier: 1, ..operation(6, 0, 0) };
    // The upper half of a value of 4 bytes is not read.
    let high = 0xdead_0000_0000_0000;
    let operations = [
        operation(WRITE, device, 7 | high),
        barrier,
        operation(WAIT, gate.0, 3 | high),
        operation(WAIT_LONG, gate.0, 5),
        operation(WRITE_LONG, device + 8, u64::MAX - 1),
    ];
    assert_eq!(submit(&operations), 0);
    assert_eq!(cuStreamQuery(stream), NOT_READY);
    gate.set(4);
    assert_eq!(cuStreamQuery(stream), NOT_READY, "the second wait has not ended");
    gate.set(5);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(read(device, 16), [&[7, 0, 0, 0, 0, 0, 0, 0, 254][..], &[255; 7]].concat());
    assert_eq!(submit(&[]), 0);
    // If one operation is refused, none is executed.
    for (bad, code) in [
        (operation(WRITE, device + 2, 1), INVALID_VALUE),
        (operation(WRITE_LONG, device + 4, 1), INVALID_VALUE),
        (ValueOperation { flags: 2, ..operation(WRITE, device, 1) }, INVALID_VALUE),
        (ValueOperation { flags: 1 << 30, ..operation(WAIT, device, 1) }, NOT_SUPPORTED),
        (ValueOperation { barrier: 2, ..barrier }, INVALID_VALUE),
        (operation(3, 0, 0), NOT_SUPPORTED),
        (operation(7, device, 0), INVALID_VALUE),
        (operation(8, device, 0), NOT_SUPPORTED),
    ] {
        assert_eq!(submit(&[operation(WRITE, device, 9), bad]), code, "{}", bad.kind);
    }
    assert_eq!(submit(&[barrier; 256]), 0);
    assert_eq!(submit(&[barrier; 257]), INVALID_VALUE);
    assert_eq!(cuStreamBatchMemOp_v2(stream, 1, ptr::null(), 0), INVALID_VALUE);
    assert_eq!(cuStreamBatchMemOp_v2(stream, 1, &raw const barrier, 1), INVALID_VALUE);
    assert_eq!(cuStreamBatchMemOp_v2(UNKNOWN as usize, 0, &raw const barrier, 0), INVALID_HANDLE);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(read(device, 4), [7, 0, 0, 0]);
    assert_eq!(cuMemFree_v2(device), 0);
}
