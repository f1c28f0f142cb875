//! Fuzzes the stand-in for DSA: its configurations, and random programs that store to portals, call
//! `write()`, and disable and enable work queues.
//!
//! Descriptors name memory of an arena, some of whose pages are not mapped. The device must not write
//! elsewhere. Lists and records are outside of the arena, so that no operation can write an unchecked
//! descriptor.
#![expect(unsafe_code, reason = "maps memory, and stores descriptors to portals")]

mod arena;

use std::arch::asm;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr;
use std::time::{Duration, Instant};

use dsa_emu::Emu;

use self::arena::{Arena, PAGE};
use crate::input::Input;

/// A descriptor as eight words.
type Descriptor = [u64; 8];

const BATCH: u8 = 1;
/// Flags: the record's address is valid, and the device writes a record even after a success.
const REPORT: u64 = 4 | 8;
/// Maximum number of descriptors in a list.
const LIST: usize = 12;
/// Maximum number of steps of a program.
const STEPS: usize = 64;
/// Time limit for a record.
const RECORD_TIMEOUT: Duration = Duration::from_secs(20);

/// A descriptor that the device must report.
struct Expected {
    record: usize,
    /// The number of the work queue.
    queue: usize,
}

/// Starts the stand-in with the input as its configuration, or runs a program that the input determines.
///
/// # Panics
///
/// If an error has more than one line, memory changed that no descriptor names, or a record is missing.
pub fn dsa_programs(input: &[u8]) {
    match input.split_first() {
        Some((b'c', text)) => configuration(text),
        Some((_, program)) => DsaProgram::new(Input::new(program)).run(),
        None => {}
    }
}

fn configuration(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    match Emu::start(text) {
        Ok(emu) => assert!(emu.sysfs_dir().is_dir() && emu.dev_dir().is_dir()),
        Err(error) => assert!(!error.to_string().is_empty() && !error.to_string().contains('\n'), "{error}"),
    }
}

/// Returns a configuration that the input determines, and for each work queue whether it is shared.
fn configured(input: &Input) -> (String, Vec<bool>) {
    let (mut text, mut shared) = (String::new(), Vec::new());
    for _ in 0..=input.below(3) {
        let byte = input.byte();
        let flag = |bit: u8| byte >> bit & 1 == 1;
        shared.push(flag(0));
        let faults =
            ["", "fail@every=5", "refuse:p=0.3", "corrupt@3", "reset@9", "gone@12", "slow@2:for=1us"];
        text += &format!(
            "[[queue]]\nmode = '{}'\nblock_on_fault = {}\nunordered = {}\nmmap = {}\nsize = {}\nmax_batch = {}\n\
             max_transfer = {}\nseed = {}\npage_faults = 0.{}\nfaults = '{}'\n",
            if flag(0) { "shared" } else { "dedicated" },
            flag(1),
            flag(2),
            !flag(3),
            1 + input.below(8),
            1 + input.below(LIST),
            [2_u64 << 30, 4096, 100, 1 << 20][input.below(4)],
            input.byte(),
            input.below(8),
            faults[input.below(faults.len())],
        );
    }
    (text, shared)
}

struct DsaProgram {
    input: Input,
    emu: Emu,
    /// For each work queue, whether it is shared. Shared work queues accept ENQCMD.
    shared: Vec<bool>,
    /// The portal of each work queue, with the file that it maps.
    portals: Vec<Option<(usize, File)>>,
    arena: Arena,
    expected: Vec<Expected>,
    /// Records of work queues that were disabled, with their status at that time. They must not change any
    /// more.
    over: Vec<(usize, u8)>,
}

impl DsaProgram {
    fn new(input: Input) -> Self {
        let (text, shared) = configured(&input);
        let emu = Emu::start(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let portals = shared.iter().map(|_| None).collect();
        Self { input, emu, shared, portals, arena: Arena::new(), expected: Vec::new(), over: Vec::new() }
    }

    fn run(mut self) {
        for queue in 0..self.shared.len() {
            self.map(queue);
        }
        for _ in 0..STEPS {
            if self.input.is_over() {
                break;
            }
            let queue = self.input.below(self.shared.len());
            match self.input.byte() % 16 {
                0..6 => self.store(queue),
                6..10 => self.write(queue),
                10 => self.disable(queue),
                11 => self.enable(queue),
                12 => self.map(queue),
                13 => drop(self.emu.submissions(&name(queue))),
                _ => self.settle(queue),
            }
        }
        for queue in 0..self.shared.len() {
            self.settle(queue);
            self.disable(queue);
        }
        assert!(self.expected.is_empty());
        for (record, status) in &self.over {
            assert_eq!(
                self.arena.status(*record),
                *status,
                "record {record} changed after its work queue was disabled"
            );
        }
        self.arena.check();
        for (portal, _) in self.portals.iter().flatten() {
            arena::unmap(*portal, PAGE);
        }
    }

    /// Maps the current portal of a work queue.
    fn map(&mut self, queue: usize) {
        let file = File::options().read(true).write(true).open(self.file(queue));
        let Ok(file) = file else { return };
        let portal = arena::map_file(file.as_raw_fd());
        if let Some((before, _)) = self.portals[queue].replace((portal, file)) {
            arena::unmap(before, PAGE);
        }
    }

    /// Returns a descriptor that the input determines, and its record, if it has its own record and must
    /// be reported.
    fn descriptor(&mut self) -> (Descriptor, Option<usize>) {
        let input = &self.input;
        let opcode = match input.byte() {
            byte @ 0..0xc0 => [0, 2, 3, 3, 4, 5, 6, 9, 0x10, 0x11, 0x20, 3][usize::from(byte % 12)],
            // The opcode is never that of a batch, whose list would consist of arbitrary bytes.
            _ => input.byte() | 0x40,
        };
        // Unknown flags are rare.
        let odd = input.byte();
        let flags = match odd {
            0..200 => REPORT | u64::from(odd & 3),
            200..230 => 4,
            _ => input.number() & 0xff_ffff,
        };
        let (src, dst) = (self.arena.address(input), self.arena.address(input));
        let extra = match (opcode, odd % 4) {
            // The low bits match those of the destination, as the device requires.
            (9, 0..3) => self.arena.address(input) & !0xfff | dst & 0xfff,
            (9, _) => self.arena.address(input),
            (3 | 4, 0..3) => 0,
            _ => input.number(),
        };
        let len = match input.byte() % 8 {
            0 => input.number() & 0xffff_ffff,
            1..5 => input.byte().into(),
            _ => input.below(5 * PAGE) as u64,
        };
        // Address of the seed, for a CRC that reads its seed from memory.
        let seed = if odd % 16 == 5 { self.arena.address(input) } else { 0 };
        let (record, own) = match input.byte() {
            0..250 => {
                let own = self.arena.record();
                (self.arena.record_at(own), Some(own))
            }
            250..253 => (self.arena.no_record(input), None),
            _ => (self.arena.record_at(0) + u64::from(input.byte()) % 32, None),
        };
        let command = flags | u64::from(opcode) << 24;
        let mut descriptor = [command << 32, record, src, dst, len, extra, seed, 0];
        if odd == 199 {
            descriptor[7] = input.number();
        }
        self.arena.allow(opcode, &descriptor);
        let reported = flags & REPORT == REPORT;
        (descriptor, own.filter(|_| reported))
    }

    /// Returns a batch. Completions of its members are not expected, because the batch may end early.
    fn batch(&mut self) -> (Descriptor, Option<usize>) {
        let members = self.input.below(LIST + 1);
        let list: Vec<_> = (0..members).map(|_| self.descriptor().0).collect();
        let mut at = self.arena.list(&list);
        let mut count = members as u64;
        match self.input.byte() {
            0..0xd0 => {}
            0xd0..0xe0 => count = self.input.number() & 0xffff_ffff,
            0xe0..0xf0 => at += u64::from(self.input.byte()),
            _ => at = self.arena.no_record(&self.input),
        }
        let own = self.arena.record();
        let command = (REPORT | u64::from(BATCH) << 24) << 32;
        let record = self.arena.record_at(own);
        ([command, record, at, 0, count, 0, 0, 0], Some(own))
    }

    fn next(&mut self) -> (Descriptor, Option<usize>) {
        if self.input.byte().is_multiple_of(4) { self.batch() } else { self.descriptor() }
    }

    /// Stores a descriptor to the portal, after waiting for a free entry if the instruction does not
    /// report a full queue.
    fn store(&mut self, queue: usize) {
        let (descriptor, own) = self.next();
        let wrong = self.input.byte() == 0xff;
        let enqcmd = self.shared[queue] != wrong;
        if !enqcmd {
            // MOVDIR64B does not report a full queue, so wait until the queue is empty.
            self.settle(queue);
        }
        let Some((portal, file)) = &self.portals[queue] else { return };
        // A queue that was disabled after it was mapped accepts no descriptor through this mapping.
        let stale = file.metadata().is_ok_and(|file| file.nlink() == 0);
        let refused = store(portal + usize::from(self.input.byte() & 15) * 64, &descriptor, enqcmd);
        assert!(!enqcmd || refused || !wrong && !stale, "a work queue accepted ENQCMD, which it must refuse");
        if !refused && !wrong && !stale {
            self.expected.extend(own.map(|record| Expected { record, queue }));
        }
    }

    fn write(&mut self, queue: usize) {
        let all: Vec<_> = (0..=self.input.below(4)).map(|_| self.next()).collect();
        let bytes: Vec<u8> = all.iter().flat_map(|(descriptor, _)| arena::bytes(descriptor)).collect();
        // An incomplete descriptor at the end is not accepted.
        let cut = bytes.len() - usize::from(self.input.byte() % 70).saturating_sub(60);
        // SAFETY: the descriptors name only memory of the arena, its lists and its records, which outlive the
        // work queues.
        if let Ok(taken) = unsafe { self.emu.write(&name(queue), &bytes[..cut]) } {
            assert!(taken <= cut && taken % 64 == 0 && taken > 0 || cut < 64, "{taken} bytes of {cut}");
            let own = all[..taken / 64].iter().filter_map(|(_, own)| *own);
            self.expected.extend(own.map(|record| Expected { record, queue }));
        }
    }

    fn file(&self, queue: usize) -> PathBuf {
        self.emu.dev_dir().join(name(queue))
    }

    fn disable(&mut self, queue: usize) {
        if self.file(queue).exists() {
            assert!(self.emu.disable(&name(queue)));
        }
        self.give_up(queue);
    }

    /// Enables a work queue that is disabled.
    fn enable(&mut self, queue: usize) {
        if !self.file(queue).exists() {
            self.give_up(queue);
            // Enabling fails if the work queue's description no longer exists.
            let _ = self.emu.enable(&name(queue));
        }
    }

    /// Expects no more records of a work queue that is disabled.
    fn give_up(&mut self, queue: usize) {
        for expected in self.expected.extract_if(.., |expected| expected.queue == queue) {
            self.over.push((expected.record, self.arena.status(expected.record)));
        }
    }

    /// Waits until a work queue has reported each accepted descriptor, unless it is disabled.
    fn settle(&mut self, queue: usize) {
        let last = self.arena.record();
        let nop = [REPORT << 32, self.arena.record_at(last), 0, 0, 0, 0, 0, 0];
        let begun = Instant::now();
        let file = self.file(queue);
        let mut submitted = false;
        loop {
            // SAFETY: the descriptor names only its record.
            submitted |= !submitted && unsafe { self.emu.write(&name(queue), &arena::bytes(&nop)) } == Ok(64);
            let own = self.expected.iter().filter(|expected| expected.queue == queue);
            let missing = own.map(|expected| expected.record).find(|record| self.arena.status(*record) == 0);
            if submitted && missing.is_none() && self.arena.status(last) != 0 {
                self.expected.retain(|expected| expected.queue != queue);
                return;
            }
            if !file.exists() {
                return self.give_up(queue);
            }
            assert!(begun.elapsed() < RECORD_TIMEOUT, "work queue {queue} did not write record {missing:?}");
            std::thread::yield_now();
        }
    }
}

fn name(queue: usize) -> String {
    format!("wq0.{queue}")
}

/// Stores a descriptor to a portal. Returns whether the device refused it.
fn store(portal: usize, descriptor: &Descriptor, enqcmd: bool) -> bool {
    #[repr(align(64))]
    struct Aligned(Descriptor);
    let aligned = Aligned(*descriptor);
    let from = ptr::from_ref(&aligned.0);
    let refused: u8;
    if enqcmd {
        // SAFETY: the address is a portal, whose stores trap; the descriptor has 64 bytes and names only
        // memory of the arena.
        unsafe {
            asm!("enqcmd rax, [rdx]", "setz {refused}", in("rax") portal, in("rdx") from, refused = out(reg_byte) refused);
        }
        return refused != 0;
    }
    // SAFETY: the address is a portal, whose stores trap; the descriptor has 64 bytes and names only
    // memory of the arena.
    unsafe { asm!("movdir64b rax, [rdx]", in("rax") portal, in("rdx") from) };
    false
}
