//! Sets of processors.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::ffi::{c_char, c_int, c_void};

use crate::c_abi::{Addr, Ptr, Text, c, c_calls};
use c::spdk_cpuset;

const SIZE: u32 = c::SPDK_CPUSET_SIZE;

/// Parses a hexadecimal mask, with or without `0x`, or a list such as `[0,2-4]`.
pub(crate) fn parse(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    if let Some(list) = text.strip_prefix('[') {
        return parse_list(list.strip_suffix(']')?);
    }
    let digits: String = text.trim_start_matches("0x").chars().filter(|c| *c != ',').collect();
    if digits.is_empty() {
        return None;
    }
    let mut cores = Vec::new();
    for (digit, place) in digits.bytes().rev().zip((0..).step_by(4)) {
        let digit = char::from(digit).to_digit(16)?;
        cores.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| place + bit));
    }
    cores.last().is_none_or(|last| *last < SIZE).then_some(cores)
}

fn parse_list(list: &str) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.trim().parse::<u32>().ok()?, to.trim().parse::<u32>().ok()?);
        if from > to || to >= SIZE {
            return None;
        }
        cores.extend(from..=to);
    }
    cores.sort_unstable();
    cores.dedup();
    Some(cores)
}

fn empty() -> spdk_cpuset {
    spdk_cpuset { str_: [0; SIZE as usize / 4 + 1], cpus: [0; SIZE as usize / 8] }
}

/// Replaces the cores of a set by these cores.
pub(crate) fn put(set: Ptr<spdk_cpuset>, cores: impl Iterator<Item = u32>) {
    let mut new = empty();
    for core in cores.filter(|core| *core < SIZE) {
        new.cpus[core as usize / 8] |= 1 << (core % 8);
    }
    set.put(new);
}

fn bytes(set: Ptr<spdk_cpuset>) -> [u8; SIZE as usize / 8] {
    set.get().map_or([0; SIZE as usize / 8], |set| set.cpus)
}

fn cores(set: Ptr<spdk_cpuset>) -> impl Iterator<Item = u32> {
    let bytes = bytes(set);
    (0..SIZE).filter(move |core| bytes[*core as usize / 8] >> (core % 8) & 1 == 1)
}

fn combine(dst: Ptr<spdk_cpuset>, src: Ptr<spdk_cpuset>, with: impl Fn(u8, u8) -> u8) {
    let (a, b) = (bytes(dst), bytes(src));
    let mut new = empty();
    for (i, byte) in new.cpus.iter_mut().enumerate() {
        *byte = with(a[i], b[i]);
    }
    dst.put(new);
}

c_calls! {
    fn spdk_cpuset_alloc() -> Ptr<spdk_cpuset> {
        // SAFETY: each function of this module uses no references after it writes a set, and C does not use a
        // set on two threads at once.
        unsafe { Ptr::give(Box::new(empty())) }
    }

    fn spdk_cpuset_free(set: Ptr<spdk_cpuset>) {
        // SAFETY: C promises that the set is from `spdk_cpuset_alloc`, and is freed once.
        drop(unsafe { set.take() });
    }

    fn spdk_cpuset_equal(a: Ptr<spdk_cpuset>, b: Ptr<spdk_cpuset>) -> bool { bytes(a) == bytes(b) }
    fn spdk_cpuset_copy(dst: Ptr<spdk_cpuset>, src: Ptr<spdk_cpuset>) { combine(dst, src, |_, b| b); }
    fn spdk_cpuset_and(dst: Ptr<spdk_cpuset>, src: Ptr<spdk_cpuset>) { combine(dst, src, |a, b| a & b); }
    fn spdk_cpuset_or(dst: Ptr<spdk_cpuset>, src: Ptr<spdk_cpuset>) { combine(dst, src, |a, b| a | b); }
    fn spdk_cpuset_xor(dst: Ptr<spdk_cpuset>, src: Ptr<spdk_cpuset>) { combine(dst, src, |a, b| a ^ b); }
    fn spdk_cpuset_negate(set: Ptr<spdk_cpuset>) { combine(set, set, |a, _| !a); }
    fn spdk_cpuset_zero(set: Ptr<spdk_cpuset>) { set.put(empty()); }

    fn spdk_cpuset_set_cpu(set: Ptr<spdk_cpuset>, cpu: u32, state: bool) {
        let rest: Vec<_> = cores(set).filter(|core| *core != cpu).collect();
        put(set, rest.into_iter().chain(state.then_some(cpu)));
    }

    fn spdk_cpuset_get_cpu(set: Ptr<spdk_cpuset>, cpu: u32) -> bool {
        bytes(set).get(cpu as usize / 8).is_some_and(|byte| byte >> (cpu % 8) & 1 == 1)
    }

    fn spdk_cpuset_for_each_cpu(
        set: Ptr<spdk_cpuset>,
        each: Option<unsafe extern "C" fn(*mut c_void, u32)>,
        ctx: Addr,
    ) {
        if let Some(each) = each {
            // SAFETY: the program passed this function together with this context, for any core.
            cores(set).for_each(|core| unsafe { each(ctx.raw(), core) });
        }
    }

    fn spdk_cpuset_count(set: Ptr<spdk_cpuset>) -> u32 {
        bytes(set).iter().map(|byte| byte.count_ones()).sum()
    }

    fn spdk_cpuset_fmt(set: Ptr<spdk_cpuset>) -> Ptr<c_char> {
        let digits: String = bytes(set).iter().rev().map(|byte| format!("{byte:02x}")).collect();
        let digits = digits.trim_start_matches('0');
        // SAFETY: the struct begins with an array of characters.
        let text = unsafe { set.void().to::<c_char>() };
        // SAFETY: the array has room for a digit per 4 cores and a NUL, and nothing else uses it during the
        // call.
        unsafe { text.put_text(SIZE as usize / 4 + 1, if digits.is_empty() { "0" } else { digits }) };
        text
    }

    fn spdk_cpuset_parse(set: Ptr<spdk_cpuset>, mask: Text) -> c_int {
        match mask.utf8().and_then(parse) {
            Some(cores) if !set.is_null() => {
                put(set, cores.into_iter());
                0
            }
            _ => -libc::EINVAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_lists_are_read() {
        for (text, cores) in [
            ("0x1", vec![0]),
            ("f0", vec![4, 5, 6, 7]),
            ("0x5", vec![0, 2]),
            ("[0,2-4]", vec![0, 2, 3, 4]),
            ("[7]", vec![7]),
            ("1,00000000", vec![32]),
            ("0", vec![]),
        ] {
            assert_eq!(parse(text), Some(cores), "{text}");
        }
        for text in ["", "0x", "g", "[", "[]", "[1-]", "[3-1]", "[1024]", "[a]"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
