//! DIF: tests check, insert, strip and update against fields that the test computes bit by bit.

use proptest::prelude::*;

use super::{Descriptor, Emu, Pages, REPORT, Record, address, describe, run, target};

const CHECK: u8 = 0x12;
const INSERT: u8 = 0x13;
const STRIP: u8 = 0x14;
const UPDATE: u8 = 0x15;

/// Computes the CRC of a block: the remainder of its bits, followed by 16 zeroes, divided by the polynomial.
/// The seed is XORed into the first 16 bits.
fn guard(block: &[u8], inverted_seed: bool) -> u16 {
    let mut bits: Vec<u8> =
        block.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    bits[..16].iter_mut().for_each(|bit| *bit ^= u8::from(inverted_seed));
    bits.extend([0; 16]);
    let divide = |rest: u32, bit| {
        let rest = rest << 1 | u32::from(bit);
        if rest & 0x1_0000 == 0 { rest } else { rest ^ 0x1_8bb7 }
    };
    bits.into_iter().fold(0, divide) as u16
}

#[derive(Clone, Copy, Debug)]
struct Tags {
    reference: u32,
    mask: u16,
    application: u16,
}

impl Tags {
    fn word(self) -> u64 {
        u64::from(self.reference) | u64::from(self.mask) << 32 | u64::from(self.application) << 48
    }
    /// Returns the tags of block `n`.
    fn at(self, n: usize, flags: u8) -> Self {
        let reference =
            if flags & 0x80 == 0 { self.reference.wrapping_add(n as u32) } else { self.reference };
        let application =
            if flags & 0x10 == 0 { self.application } else { self.application.wrapping_add(n as u16) };
        Self { reference, application, ..self }
    }
}

fn field(guard: u16, application: u16, reference: u32) -> Vec<u8> {
    [&guard.to_be_bytes()[..], &application.to_be_bytes(), &reference.to_be_bytes()].concat()
}

/// Makes a DIF descriptor with the flags of the source, of the destination, and of both.
fn dif(opcode: u8, flags: [u8; 3], tags: [u64; 2], src: u64, dst: u64, len: usize) -> Descriptor {
    let [source, target, both] = flags.map(u64::from);
    let extra = source | target << 8 | both << 16;
    Descriptor { extra, more: tags, ..describe(opcode, REPORT, src, dst, len as u32) }
}

/// Returns the tags of a record.
fn tags_of(record: &Record) -> [u64; 2] {
    [record.value, record.more]
}

#[test]
fn the_oracle_knows_the_published_check_value() {
    assert_eq!(guard(b"123456789", false), 0xd0db);
}

fn tags() -> impl Strategy<Value = Tags> {
    let near_the_end = |most: u64| prop_oneof![0..4_u64, most - 3..=most, 0..=most];
    let mask = prop_oneof![Just(0), Just(0xffff), any::<u16>()];
    (near_the_end(u32::MAX.into()), near_the_end(u16::MAX.into()), mask).prop_map(
        |(reference, application, mask)| Tags {
            reference: reference as u32,
            mask,
            application: application as u16,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fields_are_checked_and_made(
        (opcode, size, count) in (CHECK..=UPDATE, 0..4_u8, 1..5_usize),
        (inverted_seed, inverted_result) in any::<(bool, bool)>(),
        (source_flags, target_flags) in any::<(u8, u8)>(),
        (source, target_tags, random) in (tags(), tags(), any::<u64>()),
        wrong in any::<Option<(prop::sample::Index, u8)>>(),
    ) {
        let block = [512, 520, 4096, 4104][usize::from(size)];
        let flags = size | u8::from(inverted_seed) << 2 | u8::from(inverted_result) << 3;
        let (checks, makes) = (opcode != INSERT, opcode == INSERT || opcode == UPDATE);
        // Another test covers the detection of fields whose bits are all 1.
        let source_flags = if checks { source_flags & 0xf0 } else { 0 };
        let kept = if opcode == UPDATE { 0x68 } else { 0 };
        let target_flags = if makes { target_flags & (0x90 | kept) } else { 0 };
        let guard = |block: &[u8]| guard(block, inverted_seed) ^ if inverted_result { 0xffff } else { 0 };
        let wrong = wrong.filter(|_| checks).map(|(index, part)| (index.index(count), usize::from(part % 3)));

        let (mut src, mut want, mut result, mut ended) = (Vec::new(), Vec::new(), 0, count);
        for n in 0..count {
            let data: Vec<u8> = (0..block as u64)
                .map(|at| (at ^ random ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0])
                .collect();
            let (from, to) = (source.at(n, source_flags), target_tags.at(n, target_flags));
            // Bits of the mask may have any value.
            let application = from.application ^ random as u16 & from.mask;
            let mut parts = [u64::from(guard(&data)), application.into(), from.reference.into()];
            if let Some((_, part)) = wrong.filter(|(at, _)| *at == n) {
                parts[part] ^= 1 << (random % 16);
                let checked = match part {
                    0 => source_flags & 0x20 == 0,
                    1 => from.mask >> (random % 16) & 1 == 0,
                    _ => source_flags & 0x40 == 0,
                };
                if checked {
                    (result, ended) = (1 << part, n);
                }
            }
            src.extend(&data);
            if checks {
                src.extend(field(parts[0] as u16, parts[1] as u16, parts[2] as u32));
            }
            if n < ended && opcode != CHECK {
                want.extend(&data);
            }
            if n < ended && makes {
                let keeps = |flag: u8| target_flags & flag != 0;
                want.extend(field(
                    if keeps(0x20) { parts[0] as u16 } else { guard(&data) },
                    if keeps(8) { parts[1] as u16 } else { to.application & !to.mask },
                    if keeps(0x40) { parts[2] as u32 } else { to.reference },
                ));
            }
        }
        let emu = Emu::start("").unwrap();
        let mut dst = vec![0xee_u8; count * (block + 8) + 8];
        want.resize(dst.len(), 0xee);
        let words = [if checks { source.word() } else { 0 }, if makes { target_tags.word() } else { 0 }];
        let flags = [source_flags, target_flags, flags];
        let record = run(&emu, dif(opcode, flags, words, address(&src[..]), target(&mut dst), src.len()));
        let step = src.len() / count;
        let done = if result == 0 { 0 } else { ended * step };
        let status = if result == 0 { 1 } else { 9 };
        prop_assert_eq!((record.status, record.result, record.done as usize), (status, result, done));
        prop_assert!(dst == want, "the destination");
        let next = [
            if checks { source.at(ended, source_flags).word() } else { 0 },
            if makes { target_tags.at(ended, target_flags).word() } else { 0 },
        ];
        prop_assert_eq!(tags_of(&record), next);
    }
}

#[test]
fn fields_of_ones_are_not_checked_if_asked_for() {
    let emu = Emu::start("").unwrap();
    let tags = Tags { reference: 5, mask: 0, application: 6 }.word();
    for (source_flags, guard, application, reference, status, result) in [
        // Without detection, guard and both tags are wrong.
        (0, 0xffff, 0xffff, u32::MAX, 9, 7),
        (2, 0xffff, 0xffff, u32::MAX, 1, 0),
        (3, 0xffff, 0xffff, u32::MAX, 9, 8),
        // The flag for the error has no effect without detection.
        (1, 0xffff, 0xffff, u32::MAX, 9, 7),
        (2, 0xfffe, 0xffff, u32::MAX, 9, 7),
        (8, 0xfffe, 0xffff, u32::MAX, 1, 0),
        (8, 0xffff, 0xffff, 1, 9, 7),
        (4, 0xffff, 0xffff, 1, 1, 0),
        (4, 0xffff, 0xfffe, 5, 9, 3),
        (0x60, 0xffff, 6, 1, 1, 0),
    ] {
        let src = [vec![1; 512], field(guard, application, reference)].concat();
        let record = run(&emu, dif(CHECK, [source_flags, 0, 0], [tags, 0], address(&src[..]), 0, 520));
        assert_eq!(
            (record.status, record.result),
            (status, result),
            "{source_flags:#x} {guard:#x} {reference:#x}"
        );
    }
}

#[test]
fn operands_that_are_wrong_have_their_status() {
    let emu = Emu::start("").unwrap();
    let mut bytes = vec![0_u8; 4096];
    let at = target(&mut bytes);
    for (opcode, flags, tags, dst, len, status, why) in [
        (CHECK, [0x61, 0, 0x10], [0, 0], 0, 520, 0x12, "a reserved flag"),
        (CHECK, [0, 0x10, 0], [0, 0], 0, 520, 0x12, "flags of a destination"),
        (CHECK, [0, 0, 0], [0, 1], 0, 520, 0x12, "tags of a destination"),
        (INSERT, [0x10, 0, 0], [0, 0], 2048, 512, 0x12, "flags of a source"),
        (INSERT, [0, 0, 0], [1, 0], 2048, 512, 0x12, "tags of a source"),
        (INSERT, [0, 8, 0], [0, 0], 2048, 512, 0x12, "a destination field to keep, although there is none"),
        (UPDATE, [0x60, 4, 0], [0, 0], 2048, 520, 0x12, "a reserved flag of the destination"),
        (CHECK, [0, 0, 0], [0, 0], 0, 512, 0x13, "a block without its field"),
        (INSERT, [0, 0, 1], [0, 0], 2048, 512, 0x13, "a part of a block"),
        (INSERT, [0, 0, 0], [0, 0], 511, 512, 0x16, "a destination within the source"),
        (INSERT, [0, 0, 0], [0, 0], 512, 512, 1, "a destination that overlaps the end of the source"),
    ] {
        let record = run(&emu, dif(opcode, flags, tags, at, at.wrapping_add(dst), len));
        assert_eq!(record.status, status, "{why}: {record:?}");
    }
    // The source may lie in the destination, because strip writes fewer bytes than it reads.
    for (behind, status) in [(511, 0x16), (512, 9)] {
        assert_eq!(run(&emu, dif(STRIP, [0; 3], [1, 0], at + behind, at, 520)).status, status);
    }
    let reserved = Descriptor { extra: 1 << 24, ..dif(CHECK, [0; 3], [0; 2], at, 0, 520) };
    assert_eq!(run(&emu, reserved).status, 0x12);
}

/// After a page fault, the test submits the remainder with the tags of the record, as programs do.
#[test]
fn page_faults_end_between_blocks() {
    let emu = Emu::start("").unwrap();
    let pages = Pages::new(1, libc::PROT_READ);
    let src = vec![7_u8; 9 * 512];
    let tags = Tags { reference: 40, mask: 0, application: 3 };
    let dst = pages.end() - 4096;
    let record = run(&emu, dif(INSERT, [0, 0x10, 0], [0, tags.word()], address(&src[..]), dst, src.len()));
    // A page has room for 7 blocks of 520 bytes, and the eighth one meets the next page.
    assert_eq!((record.status, record.done, record.fault), (0x83, 7 * 512, pages.end()));
    assert_eq!(tags_of(&record), [0, tags.at(7, 0x10).word()]);
    let mut rest = vec![0_u8; 2 * 520];
    let left = address(&src[record.done as usize..]);
    let again = dif(INSERT, [0, 0x10, 0], tags_of(&record), left, target(&mut rest), 2 * 512);
    assert_eq!(run(&emu, again).status, 1);
    let last = &rest[1032..];
    assert_eq!(last, field(guard(&src[..512], false), 3 + 8, 40 + 8));

    // Injected page faults also occur at block boundaries, and a later try passes each of them.
    let emu = Emu::start("page_faults = 1.0").unwrap();
    let mut made = vec![0_u8; 9 * 520];
    let (mut done, mut faults) = (0, 0);
    let mut words = [0, tags.word()];
    while done < 9 {
        let (from, to) = (address(&src[512 * done..]), target(&mut made[520 * done..]));
        let record = run(&emu, dif(INSERT, [0, 0x10, 0], words, from, to, 512 * (9 - done)));
        if record.status == 1 {
            done = 9;
        } else {
            assert_eq!((record.status, record.done % 512), (3, 0));
            assert_eq!(record.fault, (from + u64::from(record.done)) & !0xfff);
            (done, words, faults) = (done + record.done as usize / 512, tags_of(&record), faults + 1);
        }
    }
    assert!(faults > 0);
    for n in 0..9 {
        let last = &made[520 * n + 512..][..8];
        assert_eq!(last, field(guard(&src[..512], false), 3 + n as u16, 40 + n as u32), "block {n}");
    }
}
