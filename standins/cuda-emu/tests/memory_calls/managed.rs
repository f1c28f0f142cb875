//! Tests of calls with several managed ranges, and of the attributes of these ranges.

use super::*;

const LEN: usize = 8192;
static HOST: Location = Location { kind: 2, id: 0 };
/// `CU_DEVICE_INVALID` and `CU_DEVICE_CPU`.
const NONE: c_int = -2;
const CPU: c_int = -1;

/// Returns an attribute of one word.
fn word(attribute: c_int, addr: u64, len: usize) -> c_int {
    let mut value = 99;
    assert_eq!(cuMemRangeGetAttribute(&raw mut value, 4, attribute, addr, len), 0);
    value
}

#[test]
fn ranges_are_prefetched_and_discarded_by_one_call() {
    start();
    let stream = stream();
    let addrs = [(); 3].map(|()| made(|addr| cuMemAllocManaged(addr, LEN, 1)));
    let lens = [LEN, 100, LEN];
    for addr in addrs {
        assert_eq!(cuMemsetD8_v2(addr, 1, LEN), 0);
    }
    let prefetch = |places: &[Location], indices: &[usize], flags| {
        let (places, indices, number) = (places.as_ptr(), indices.as_ptr(), indices.len());
        cuMemPrefetchBatchAsync(addrs.as_ptr(), lens.as_ptr(), 3, places, indices, number, flags, stream)
    };
    assert_eq!(addrs.map(|addr| word(4, addr, 100)), [NONE; 3]);
    assert_eq!(prefetch(&[DEVICE, HOST], &[0, 2], 0), 0);
    assert_eq!(addrs.map(|addr| word(4, addr, 100)), [0, 0, CPU]);
    assert_eq!(word(4, addrs[1], LEN), NONE, "the rest of the second range did not move");
    assert_eq!(read(addrs[0], LEN), [1; LEN]);
    // The first index is 0, indices rise, and each is the number of a range.
    for indices in [&[1, 2], &[0, 0], &[2, 0], &[0, 3]] {
        assert_eq!(prefetch(&[DEVICE, HOST], indices, 0), INVALID_VALUE, "{indices:?}");
    }
    assert_eq!(prefetch(&[], &[], 0), INVALID_VALUE);
    assert_eq!(prefetch(&[DEVICE], &[0], 1), INVALID_VALUE);
    assert_eq!(prefetch(&[Location { kind: 1, id: 9 }], &[0], 0), INVALID_DEVICE);
    // Discarded bytes are lost in the order of the stream.
    let gate = Gate::new();
    assert_eq!(cuStreamWaitValue32_v2(stream, gate.0, 1, 1), 0);
    assert_eq!(cuMemDiscardBatchAsync(addrs.as_ptr(), lens.as_ptr(), 2, 0, stream), 0);
    assert_eq!(read(addrs[0], LEN), [1; LEN]);
    gate.set(1);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert!(!read(addrs[0], LEN).contains(&1));
    assert_eq!(read(addrs[1], LEN)[100..], [1; LEN - 100]);
    let discard_third = |len: usize, place: Location| {
        let (addr, len, place, index) =
            (&raw const addrs[2], &raw const len, &raw const place, &raw const ZERO);
        cuMemDiscardAndPrefetchBatchAsync(addr, len, 1, place, index, 1, 0, stream)
    };
    static ZERO: usize = 0;
    assert_eq!(discard_third(LEN, DEVICE), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert!(!read(addrs[2], LEN).contains(&1));
    assert_eq!(word(4, addrs[2], LEN), 0);
    // Refused ranges change nothing.
    assert_eq!(cuMemsetD8_v2(addrs[0], 1, LEN), 0);
    assert_eq!(discard_third(LEN + 1, DEVICE), INVALID_VALUE);
    let beyond = [LEN, LEN + 1];
    assert_eq!(cuMemDiscardBatchAsync(addrs.as_ptr(), beyond.as_ptr(), 2, 0, stream), INVALID_VALUE);
    assert_eq!(cuMemDiscardBatchAsync(addrs.as_ptr(), lens.as_ptr(), 0, 0, stream), INVALID_VALUE);
    assert_eq!(cuMemDiscardBatchAsync(addrs.as_ptr(), lens.as_ptr(), 1, 1, stream), INVALID_VALUE);
    assert_eq!(cuMemDiscardBatchAsync(ptr::null(), lens.as_ptr(), 1, 0, stream), INVALID_VALUE);
    assert_eq!(read(addrs[0], LEN), [1; LEN]);
    for addr in addrs {
        assert_eq!(cuMemFree_v2(addr), 0);
    }
}

#[test]
fn managed_ranges_have_the_advice_that_they_were_given() {
    start();
    let addr = made(|addr| cuMemAllocManaged(addr, LEN, 1));
    let all = |attribute| word(attribute, addr, LEN);
    assert_eq!([1, 2, 4, 5, 7].map(all), [0, NONE, NONE, 0, 0]);
    assert_eq!(cuMemAdvise_v2(addr, LEN, 1, DEVICE), 0);
    assert_eq!(cuMemAdvise_v2(addr, LEN, 3, DEVICE), 0);
    assert_eq!(cuMemAdvise_v2(addr, 4096, 5, DEVICE), 0);
    assert_eq!(cuMemAdvise_v2(addr, LEN, 5, HOST), 0);
    assert_eq!([1, 2, 5, 6].map(all), [1, 0, 1, 0]);
    let accessed = |len| {
        let mut words = [99; 3];
        assert_eq!(cuMemRangeGetAttribute(words.as_mut_ptr(), 12, 3, addr, len), 0);
        words
    };
    assert_eq!((accessed(4096), accessed(LEN)), ([0, CPU, NONE], [CPU, NONE, NONE]));
    assert_eq!(cuMemAdvise_v2(addr + 100, 100, 2, DEVICE), 0);
    assert_eq!((all(1), word(1, addr, 100), word(1, addr + 50, 100)), (0, 1, 0));
    assert_eq!(cuMemAdvise_v2(addr, LEN, 3, HOST), 0);
    assert_eq!([2, 5].map(all), [CPU, 2]);
    assert_eq!(cuMemAdvise_v2(addr, LEN, 4, DEVICE), 0);
    assert_eq!(cuMemAdvise_v2(addr, LEN, 6, HOST), 0);
    assert_eq!((all(2), accessed(LEN)), (NONE, [NONE; 3]));
    // Several attributes.
    let (mut words, mut places) = (0, [7; 2]);
    let to = [&raw mut words, places.as_mut_ptr()];
    assert_eq!(cuMemRangeGetAttributes(to.as_ptr(), [4, 8].as_ptr(), [1, 3].as_ptr(), 2, addr, 100), 0);
    assert_eq!((words, places), (1, [0, NONE]));
    assert_eq!(
        cuMemRangeGetAttributes(to.as_ptr(), [4, 7].as_ptr(), [1, 3].as_ptr(), 2, addr, 100),
        INVALID_VALUE
    );
    // Refused attributes, rooms and ranges.
    let mut out = 0;
    for (room, attribute, addr, len) in [
        (4, 0, addr, LEN),
        (4, 9, addr, LEN),
        (8, 1, addr, LEN),
        (0, 3, addr, LEN),
        (4, 1, addr, LEN + 1),
        (4, 1, addr, 0),
        (4, 1, UNKNOWN, 1),
    ] {
        assert_eq!(cuMemRangeGetAttribute(&raw mut out, room, attribute, addr, len), INVALID_VALUE);
    }
    assert_eq!(cuMemRangeGetAttribute(ptr::null_mut(), 4, 1, addr, LEN), INVALID_VALUE);
    assert_eq!(cuMemFree_v2(addr), 0);
    // Memory at the same address has no advice.
    let again = made(|addr| cuMemAllocManaged(addr, LEN, 1));
    assert_eq!(word(1, again, LEN), 0);
    assert_eq!(cuMemFree_v2(again), 0);
}
