//! Submits descriptors by `write()`, and checks the completion records.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#![expect(unsafe_code, reason = "passes addresses, which the stand-in accesses")]

#[path = "statuses/dif.rs"]
mod dif;

use std::cell::UnsafeCell;

use dsa_emu::Emu;
use proptest::prelude::*;
use rustix::io::Errno;

/// Flags: the address of the record is valid, and a record is requested.
const REPORT: u32 = 4 | 8;
const BLOCK: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Descriptor {
    pasid: u32,
    command: u32,
    record: u64,
    src: u64,
    dst: u64,
    len: u32,
    interrupt: u16,
    reserved: u16,
    extra: u64,
    more: [u64; 2],
}

#[derive(Debug, Default, Clone, Copy)]
#[repr(C, align(32))]
struct Record {
    status: u8,
    result: u8,
    reserved: u16,
    done: u32,
    fault: u64,
    value: u64,
    more: u64,
}

/// A completion record that the stand-in writes while the test runs.
#[derive(Debug, Default)]
struct Place(UnsafeCell<Record>);

impl Place {
    fn address(&self) -> u64 {
        self.0.get().expose_provenance() as u64
    }
    fn get(&self) -> Record {
        // SAFETY: the stand-in has written the record, or never writes it.
        unsafe { self.0.get().read_volatile() }
    }
    fn wait(&self) -> Record {
        // SAFETY: the read is of one byte, the status, which the stand-in writes last.
        let status = || unsafe { self.0.get().cast::<u8>().read_volatile() };
        while status() == 0 {
            std::thread::yield_now();
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        self.get()
    }
}

fn describe(opcode: u8, flags: u32, src: u64, dst: u64, len: u32) -> Descriptor {
    Descriptor { command: flags | u32::from(opcode) << 24, src, dst, len, ..Descriptor::default() }
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>().expose_provenance() as u64
}

/// Returns the [`address`] of bytes that the stand-in may write.
fn target(of: &mut [u8]) -> u64 {
    of.as_mut_ptr().expose_provenance() as u64
}

fn submit(emu: &Emu, descriptors: &[Descriptor]) -> Result<usize, Errno> {
    // SAFETY: descriptors are plain bytes without padding.
    let bytes =
        unsafe { std::slice::from_raw_parts(descriptors.as_ptr().cast::<u8>(), size_of_val(descriptors)) };
    // SAFETY: the memory that the descriptors name lives until their records are written.
    unsafe { emu.write("wq0.0", bytes) }
}

/// Runs one descriptor, and returns its record.
fn run(emu: &Emu, descriptor: Descriptor) -> Record {
    let record = Place::default();
    assert_eq!(submit(emu, &[Descriptor { record: record.address(), ..descriptor }]), Ok(64));
    record.wait()
}

/// Pages, of which the last has the rights `last`.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(pages: usize, last: i32) -> Self {
        let len = (pages + 1) * 4096;
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses unused addresses for the new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the range is the last page of the mapping.
        assert_eq!(unsafe { libc::mprotect(start.wrapping_byte_add(len - 4096), 4096, last) }, 0);
        Self(start.cast(), len)
    }
    fn end(&self) -> u64 {
        (self.0.expose_provenance() + self.1 - 4096) as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and this is its only unmapping.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

#[test]
fn invalid_descriptors_have_their_status() {
    let emu = Emu::start("max_transfer = 4096\nmax_batch = 4").unwrap();
    let (a, mut b) = ([1_u8; 8192], [0_u8; 8192]);
    let (src, dst) = (address(&a), target(&mut b));
    let copy = describe(3, REPORT, src, dst, 64);
    let list = [copy; 8];
    let list = address(&list);
    for (descriptor, status, why) in [
        (copy, 1, "a copy"),
        (describe(0, REPORT, 0, 0, 0), 1, "a nop"),
        (describe(2, REPORT, 0, 0, 0), 1, "a drain"),
        (describe(0x16, REPORT, src, dst, 64), 0x10, "no such operation"),
        (describe(0xff, REPORT, src, dst, 64), 0x10, "no such operation"),
        (describe(3, REPORT | 0x10, src, dst, 64), 0x11, "an interrupt"),
        (describe(3, REPORT | BLOCK, src, dst, 64), 0x11, "block-on-fault, which is not configured"),
        (describe(3, REPORT | 0x80, src, dst, 64), 0x11, "a flag of comparisons"),
        (Descriptor { reserved: 1, ..copy }, 0x12, "a reserved field"),
        (Descriptor { more: [0, 1], ..copy }, 0x12, "a reserved field"),
        (describe(3, REPORT, src, dst, 0), 0x13, "no bytes"),
        (describe(3, REPORT, src, dst, 4097), 0x13, "too many bytes"),
        (describe(1, REPORT, list, 0, 1), 0x14, "a batch of one"),
        (describe(1, REPORT, list, 0, 5), 0x14, "a batch with too many descriptors"),
        (describe(0x11, REPORT, src, src + 63, 64), 0x16, "ranges that overlap"),
        (Descriptor { extra: dst + 64, ..describe(9, REPORT, src, dst, 64) }, 0x17, "dualcast"),
        (describe(1, REPORT, list + 32, 0, 2), 0x18, "a list that is not aligned"),
    ] {
        let record = run(&emu, descriptor);
        assert_eq!(record.status, status, "{why}: {record:?}");
        if status == 0x11 {
            assert_eq!(record.value, u64::from(descriptor.command & 0xff_fff3 & !8), "{why}");
        }
    }
}

#[test]
fn write_refuses_as_the_kernel_does() {
    let emu = Emu::start("mmap = false").unwrap();
    let records: [Place; 2] = Default::default();
    let nop = describe(0, REPORT, 0, 0, 0);
    let to = |n: usize| Descriptor { record: records[n].address(), ..nop };
    assert_eq!(submit(&emu, &[Descriptor { record: records[0].address() + 8, ..nop }]), Err(Errno::INVAL));
    assert_eq!(submit(&emu, &[describe(1, REPORT, 64, 0, 2)]), Err(Errno::INVAL));
    // Descriptors before a refused one are accepted.
    assert_eq!(submit(&emu, &[to(0), to(1), describe(1, REPORT, 64, 0, 2), to(0)]), Ok(128));
    assert_eq!(records.each_ref().map(|record| record.wait().status), [1, 1]);
    assert!(emu.disable("wq0.0"));
    assert_eq!(submit(&emu, &[nop]), Err(Errno::NODEV));
    let full = Emu::start("size = 2\nfaults = 'stick@1'").unwrap();
    let nops = [nop; 8];
    let taken = submit(&full, &nops).unwrap() / 64;
    assert!((2..=3).contains(&taken), "2 descriptors wait, and 1 may have begun: {taken}");
    while submit(&full, &nops).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(submit(&full, &nops), Err(Errno::AGAIN));
}

#[test]
fn page_faults_are_told_to_the_byte() {
    for (config, flags, code) in [("", 0, 3), ("block_on_fault = true", BLOCK, 4)] {
        let emu = Emu::start(config).unwrap();
        let (none, read_only) = (Pages::new(8, libc::PROT_NONE), Pages::new(8, libc::PROT_READ));
        let bytes: Vec<u8> = (0..32768_u32).map(|n| (n * 7 + n / 253) as u8).collect();
        for before in [0, 1, 100, 4095, 4096, 20_000] {
            let len = before + 50;
            // The source extends into a page that is not mapped.
            let to = none.0.wrapping_add(8 * 4096 - before as usize);
            // SAFETY: the pages before the end, and the vector, have this many bytes.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), before as usize) };
            let mut dst = vec![0xee_u8; len as usize];
            let from = none.end() - u64::from(before);
            let record = run(&emu, describe(3, REPORT | flags, from, target(&mut dst), len));
            assert_eq!((record.status, record.done, record.fault), (code, before, none.end()));
            dst[before as usize..].iter().for_each(|byte| assert_eq!(*byte, 0xee));
            assert!(dst[..before as usize] == bytes[..before as usize]);
            // The record contains the checksum of the bytes before the fault.
            let crc = run(&emu, describe(0x10, REPORT | flags, from, 0, len));
            assert_eq!((crc.status, crc.done), (code, before));
            assert_eq!(crc.value as u32, crc32c::crc32c(&bytes[..before as usize]));
            // The destination extends into a page that cannot be written.
            let to = read_only.end() - u64::from(before);
            for opcode in [3, 4] {
                let src = if opcode == 4 { 0x0102_0304_0506_0708 } else { address(&bytes[..]) };
                let record = run(&emu, describe(opcode, REPORT | flags, src, to, len));
                assert_eq!(
                    (record.status, record.done, record.fault),
                    (code | 0x80, before, read_only.end()),
                    "opcode {opcode}"
                );
            }
        }
    }
}

#[test]
fn a_batch_tells_its_end() {
    let emu = Emu::start("").unwrap();
    let records: [Place; 4] = Default::default();
    let (a, mut b) = ([3_u8; 64], [0_u8; 64]);
    let (src, dst) = (address(&a), target(&mut b));
    let copy = |n: usize, flags, len| Descriptor {
        record: records[n].address(),
        ..describe(3, flags, src, dst, len)
    };
    // The second descriptor fails. The third has no fence and runs. The fourth has a fence and does not run.
    let list = [copy(0, REPORT, 64), copy(1, REPORT, 0), copy(2, REPORT, 64), copy(3, REPORT | 1, 64)];
    let record = run(&emu, describe(1, REPORT, address(&list), 0, 4));
    assert_eq!((record.status, record.done), (5, 3));
    assert_eq!(records.each_ref().map(|record| record.get().status), [1, 0x13, 1, 0]);
    // Half of the list is not mapped.
    let pages = Pages::new(1, libc::PROT_NONE);
    let nop = describe(0, 0, 0, 0, 0);
    let two = pages.0.wrapping_add(4096 - 128).cast::<[Descriptor; 2]>();
    // SAFETY: the bytes end at the end of the writable page, and their address is aligned.
    unsafe { two.write([nop; 2]) };
    let record = run(&emu, describe(1, REPORT, pages.end() - 128, 0, 4));
    assert_eq!((record.status, record.done, record.fault), (6, 2, pages.end()));
    // The record of a success is written only on request, and a batch must not contain a batch.
    let silent = Place::default();
    let list = [
        Descriptor { record: silent.address(), ..describe(0, 4, 0, 0, 0) },
        Descriptor { record: records[3].address(), ..describe(1, REPORT, address(&list), 0, 2) },
    ];
    assert_eq!(run(&emu, describe(1, REPORT, address(&list), 0, 2)).status, 5);
    assert_eq!((silent.get().status, records[3].get().status), (0, 0x10));
}

/// Two regions of 100 words, and room for a delta record plus one entry.
#[repr(align(64))]
struct Regions {
    old: [u64; 100],
    new: [u64; 100],
    record: [u8; 1010],
}

#[test]
fn delta_records_have_the_words_that_differ() {
    let emu = Emu::start("").unwrap();
    for (differing, size_max, result, entries) in [
        (&[][..], 80, 0, 0),
        (&[0, 3, 99][..], 80, 1, 3),
        (&[7, 8, 9, 10, 11, 12, 13, 14][..], 80, 1, 8),
        (&[7, 8, 9, 10, 11, 12, 13, 14, 15][..], 80, 2, 8),
    ] {
        let mut regions = Regions { old: [5; 100], new: [5; 100], record: [0xee; 1010] };
        for word in differing {
            regions.new[*word] = 0x0102_0304_0506_0700 + *word as u64;
        }
        let (old, new) = (regions.old.as_mut_ptr(), regions.new.as_mut_ptr());
        let [old, new] = [old, new].map(|region| region.expose_provenance() as u64);
        let create = Descriptor {
            extra: target(&mut regions.record),
            more: [size_max, 0],
            ..describe(7, REPORT, old, new, 800)
        };
        let created = run(&emu, create);
        assert_eq!((created.status, created.result, created.value), (1, result, 10 * entries));
        let (found, rest) = regions.record.split_at(10 * entries as usize);
        let expected = differing[..entries as usize].iter().flat_map(|word| {
            let offset = (*word as u16).to_le_bytes();
            offset.into_iter().chain(regions.new[*word].to_le_bytes())
        });
        assert!(found.iter().copied().eq(expected), "{differing:?}: {found:?}");
        assert!(rest.iter().all(|byte| *byte == 0xee), "bytes after the record");
        // The predicate has one bit for each expected result.
        let checked = Descriptor { command: create.command | 0x80, more: [size_max, 1 << result], ..create };
        assert_eq!(run(&emu, checked).status, 1);
        assert_eq!(run(&emu, Descriptor { more: [size_max, 7 & !(1 << result)], ..checked }).status, 2);
        if result == 1 {
            let apply = Descriptor { extra: created.value, ..describe(8, REPORT, create.extra, old, 800) };
            assert_eq!(run(&emu, apply).status, 1);
            assert_eq!(regions.old, regions.new);
        }
    }
}

#[test]
fn delta_records_that_are_wrong_have_their_status() {
    let emu = Emu::start("").unwrap();
    let mut regions = Regions { old: [5; 100], new: [6; 100], record: [0; 1010] };
    // The record names the words 4, 9, 9 and 200.
    for (at, word) in [4_u8, 9, 9, 200].into_iter().enumerate() {
        regions.record[10 * at] = word;
    }
    let (old, new) = (address(&regions.old), address(&regions.new));
    let record = target(&mut regions.record);
    let pages = Pages::new(1, libc::PROT_NONE);
    let create = |old, len, record, size_max| Descriptor {
        extra: record,
        more: [size_max, 0],
        ..describe(7, REPORT, old, new, len)
    };
    let apply = |record, len, size| Descriptor { extra: size, ..describe(8, REPORT, record, old, len) };
    for (descriptor, status, done, why) in [
        (create(old, 804, record, 80), 0x13, 0, "an incomplete word"),
        (create(old, 0x8_0008, record, 80), 0x13, 0, "more words than the maximum number"),
        (create(old, 800, record, 75), 0x15, 0, "an incomplete entry"),
        (create(old, 800, record, 0), 0x15, 0, "no entry"),
        (create(old, 800, record, 70), 0x15, 0, "fewer than eight entries"),
        (apply(record, 800, 0), 0x15, 0, "no entry"),
        (create(old + 4, 800, record, 80), 0x1c, 0, "not aligned"),
        (create(old, 800, record + 4, 80), 1, 64, "a record at any address"),
        (create(old, 800, new + 792, 80), 0x16, 0, "a record in a source"),
        (create(old, 800, record, 80 | 1 << 32), 0x12, 0, "a reserved field"),
        (create(pages.end() - 16, 800, record, 80), 3, 16, "a source without a page"),
        (create(old, 800, pages.end() - 16, 80), 0x83, 8, "a record without a page"),
        (apply(record, 804, 10), 0x13, 0, "an incomplete word"),
        (apply(record, 800, 15), 0x15, 0, "an incomplete entry"),
        (apply(old, 800, 10), 0x16, 0, "a record that overlaps the destination"),
        (apply(record, 72, 20), 8, 10, "a word outside the destination"),
        (apply(record, 800, 30), 7, 20, "a word twice"),
        (apply(pages.end() - 8, 800, 20), 3, 0, "a record without a page"),
    ] {
        // The device may have overwritten the record, so the test writes its words again.
        for (at, word) in [4_u8, 9, 9, 200].into_iter().enumerate() {
            regions.record[10 * at..][..2].copy_from_slice(&[word, 0]);
        }
        let found = run(&emu, descriptor);
        assert_eq!((found.status, found.done), (status, done), "{why}");
    }
}

#[test]
fn lost_operations_are_done_and_not_told() {
    let emu = Emu::start("faults = 'lose@1'").unwrap();
    let (a, mut b, record) = ([3_u8; 64], [0_u8; 64], Place::default());
    let copy = describe(3, REPORT, address(&a), target(&mut b), 64);
    assert_eq!(submit(&emu, &[Descriptor { record: record.address(), ..copy }]), Ok(64));
    assert_eq!(run(&emu, describe(2, REPORT, 0, 0, 0)).status, 1);
    assert_eq!((std::hint::black_box(b), record.get().status), ([3; 64], 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Runs every operation, and compares with a result that the test computes in a different way.
    #[test]
    fn operations_do_what_they_say(
        opcode in prop::sample::select(vec![3_u8, 4, 5, 6, 9, 0x10, 0x11]),
        len in 1..40_000_usize,
        (offset, difference, shift) in (0..64_usize, any::<Option<prop::sample::Index>>(), -200..200_isize),
        seed in any::<u32>(),
        pattern in any::<u64>(),
    ) {
        let emu = Emu::start("").unwrap();
        let cycle = |at: usize| pattern.to_le_bytes()[at % 8];
        let mut src = vec![0x55_u8; len + 500];
        for (n, byte) in src.iter_mut().enumerate() {
            *byte = (n as u64 ^ pattern).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7];
        }
        let bytes = src[200..200 + len].to_vec();
        let mut dst = vec![0x77_u8; 3 * 65_536];
        let at = (target(&mut dst).next_multiple_of(4096) - target(&mut dst)) as usize + offset;
        let second = at + 45_056;
        match opcode {
            5 => dst[at..at + len].copy_from_slice(&bytes),
            6 => (0..len).for_each(|n| src[200 + n] = cycle(n)),
            _ => {}
        }
        let differs = difference.map(|index| index.index(len));
        if let Some(differs) = differs {
            src[200 + differs] ^= 0x10;
        }
        let bytes = src[200..200 + len].to_vec();
        let mut descriptor =
            describe(opcode, REPORT, target(&mut src[200..]), target(&mut dst[at..]), len as u32);
        match opcode {
            // A copy whose source and destination overlap.
            3 => descriptor.dst = descriptor.src.wrapping_add_signed(shift as i64),
            4 => descriptor.src = pattern,
            6 => descriptor.dst = pattern,
            9 => descriptor.extra = target(&mut dst[second..]),
            _ => descriptor.extra = u64::from(seed),
        }
        if opcode == 5 || opcode == 6 {
            descriptor.extra = 0;
        }
        let (mut want_src, mut want_dst) = (src.clone(), dst.clone());
        match opcode {
            3 => want_src.copy_within(200..200 + len, 200_usize.wrapping_add_signed(shift)),
            4 => (0..len).for_each(|n| want_dst[at + n] = cycle(n)),
            9 | 0x11 => want_dst[at..at + len].copy_from_slice(&bytes),
            _ => {}
        }
        if opcode == 9 {
            want_dst[second..second + len].copy_from_slice(&bytes);
        }
        let record = run(&emu, descriptor);
        prop_assert_eq!(record.status, 1);
        prop_assert!(src == want_src && dst == want_dst, "opcode {}", opcode);
        match opcode {
            5 | 6 => {
                prop_assert_eq!(record.result, u8::from(differs.is_some()));
                prop_assert_eq!(record.done as usize, differs.unwrap_or(len));
            }
            0x10 | 0x11 => {
                let mut crc = !seed;
                for byte in &bytes {
                    crc ^= u32::from(*byte);
                    for _ in 0..8 {
                        crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                    }
                }
                prop_assert_eq!(record.value as u32, !crc);
            }
            _ => {}
        }
    }
}
