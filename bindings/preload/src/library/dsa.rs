//! A work queue of Intel DSA with shared virtual memory: the device reads and writes at the program's own
//! addresses.
//!
//! A call submits one descriptor and waits for its end. Signals are blocked meanwhile, because a handler that
//! leaves the call by `siglongjmp`, or a cancellation of the thread, must not leave a device behind that
//! writes the program's memory. The device reports a page that it cannot access, and the CPU goes on at this
//! page: then the program meets the fault as it would without the device.
#![expect(unsafe_code, reason = "maps and uses a work queue")]

use core::arch::asm;
use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use dsa_sys::{HwDescriptor, Record, flag, op, status};

use super::system::{self, File, Mode, SignalsBlocked};
use super::text::{Stored, Text};
use crate::options::number;
use crate::stream;

/// Number of tries before a shared work queue counts as busy.
const TRIES: u32 = 16;
/// Number of page faults after which the CPU executes the remainder of a call.
const MAX_FAULTS: u32 = 8;
/// Number of bytes that the CPU moves at a page fault, which makes their pages present.
const STEP: usize = 64 << 10;
/// Number of failures after which the work queue is no longer used.
const MAX_FAILURES: u32 = 4;

static PORTAL: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// A page that the kernel clears in a forked child, which does not have the portal.
static MARK: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static SHARED: AtomicBool = AtomicBool::new(false);
/// Number of free entries.
static ENTRIES: AtomicU32 = AtomicU32::new(0);
static MAX_TRANSFER: AtomicUsize = AtomicUsize::new(0);
static FAILURES: AtomicU32 = AtomicU32::new(0);
/// Path of the file that has the work queue's state.
static STATE_PATH: Stored<PATH_MAX> = Stored::new();
const PATH_MAX: usize = 512;

type Path = Text<PATH_MAX>;

/// Returns true if this process has a work queue that works.
pub(super) fn is_usable() -> bool {
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: the page stays mapped and readable.
    !mark.is_null() && FAILURES.load(Ordering::Relaxed) < MAX_FAILURES && unsafe { mark.read_volatile() } != 0
}

/// Opens work queue `name`, or the first one that can be used. Writes its name to `found`.
pub(super) fn open(name: Option<&[u8]>, found: &mut Text<16>) -> bool {
    let dev = system::variable(c"DSA_DEV_PATH").unwrap_or(c"/dev/dsa");
    let sysfs = system::variable(c"DSA_SYSFS_PATH").unwrap_or(c"/sys/bus/dsa/devices");
    let name = name.map(|name| core::str::from_utf8(name).unwrap_or_default());
    if File::open(dev, Mode::Read).is_none() {
        return false;
    }
    for (device, queue) in (0..16).flat_map(|device| (0..8).map(move |queue| (device, queue))) {
        found.clear();
        _ = match name {
            Some(name) => found.write_str(name),
            None => write!(found, "wq{device}.{queue}"),
        };
        if open_queue(dev, sysfs, found) {
            return true;
        }
        if name.is_some() {
            break;
        }
    }
    found.clear();
    false
}

fn path(dir: &CStr, name: &Text<16>, file: &str) -> Path {
    let mut path = Path::new();
    path.push(dir.to_bytes());
    path.push(b"/");
    path.push(name.bytes());
    path.push(file.as_bytes());
    path.push(b"\0");
    path
}

/// Opens a file whose path ends with a zero byte.
fn open_file(path: &[u8], mode: Mode) -> Option<File> {
    File::open(CStr::from_bytes_until_nul(path).ok()?, mode)
}

/// Returns true if the first line of a file is `expected`.
fn file_says(path: &[u8], expected: &[u8]) -> bool {
    let mut content = [0; 64];
    open_file(path, Mode::Read).is_some_and(|file| file.read(&mut content).trim_ascii() == expected)
}

fn number_in(path: &[u8]) -> Option<usize> {
    let mut content = [0; 64];
    number(open_file(path, Mode::Read)?.read(&mut content).trim_ascii())
}

fn open_queue(dev: &CStr, sysfs: &CStr, name: &Text<16>) -> bool {
    let described = |file| path(sysfs, name, file);
    let state = described("/state");
    if !file_says(state.bytes(), b"enabled") || !file_says(described("/type").bytes(), b"user") {
        return false;
    }
    let shared = file_says(described("/mode").bytes(), b"shared");
    let (Some(size), Some(max)) =
        (number_in(described("/size").bytes()), number_in(described("/max_transfer_size").bytes()))
    else {
        return false;
    };
    let Some(file) = open_file(path(dev, name, "").bytes(), Mode::ReadWrite) else {
        return false;
    };
    let (Some(portal), Some(mark)) = (file.map_portal(), system::page_wiped_by_fork()) else {
        return false;
    };
    STATE_PATH.set(state.bytes());
    SHARED.store(shared, Ordering::Relaxed);
    ENTRIES.store(size as u32, Ordering::Relaxed);
    MAX_TRANSFER.store(max.min(1 << 30), Ordering::Relaxed);
    PORTAL.store(portal, Ordering::Relaxed);
    // SAFETY: the page is new and writable.
    unsafe { mark.write_volatile(1) };
    MARK.store(mark, Ordering::Release);
    true
}

/// Returns true if the work queue was disabled after it was opened. Then its descriptors have ended.
fn is_disabled() -> bool {
    !file_says(&STATE_PATH.get(), b"enabled")
}

/// The end of a descriptor.
enum Outcome {
    /// All bytes are done. The number is that of the equal bytes if a comparison found a difference.
    Done(Option<usize>),
    /// A page cannot be accessed. The bytes before it are done.
    Fault(usize),
    /// The work queue is full, or has failed.
    Refused,
}

/// Copies. Returns false if the device has done nothing.
///
/// # Safety
///
/// As for `memcpy`.
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let descriptor = |at, len| HwDescriptor {
        command: u32::from(op::MEMMOVE) << 24 | flag::CACHE,
        src: src.wrapping_add(at).expose_provenance() as u64,
        dst: dst.wrapping_add(at).expose_provenance() as u64,
        len,
        ..HwDescriptor::default()
    };
    // SAFETY: the CPU copies a part of the caller's ranges.
    let cpu = |at, len| unsafe { stream::copy(dst.wrapping_add(at), src.wrapping_add(at), len) };
    // SAFETY: the descriptors copy parts of the caller's ranges, and so does the CPU.
    unsafe { write_by(len, descriptor, cpu) }
}

/// Fills. Returns false if the device has done nothing.
///
/// # Safety
///
/// As for `memset`.
pub(super) unsafe fn fill(dst: *mut u8, byte: u8, len: usize) -> bool {
    let descriptor = |at, len| HwDescriptor {
        command: u32::from(op::FILL) << 24 | flag::CACHE,
        src: u64::from(byte) * 0x0101_0101_0101_0101,
        dst: dst.wrapping_add(at).expose_provenance() as u64,
        len,
        ..HwDescriptor::default()
    };
    // SAFETY: the CPU fills a part of the caller's range.
    let cpu = |at, len| unsafe { stream::fill(dst.wrapping_add(at), byte, len) };
    // SAFETY: the descriptors fill parts of the caller's range, and so does the CPU.
    unsafe { write_by(len, descriptor, cpu) }
}

/// Executes the descriptors of a call, and by the CPU what the device cannot do.
///
/// # Safety
///
/// A descriptor and a call of `cpu` may execute any part of the call, also twice.
unsafe fn write_by(
    len: usize,
    descriptor: impl Fn(usize, u32) -> HwDescriptor,
    cpu: impl Fn(usize, usize),
) -> bool {
    let (mut at, mut faults) = (0, 0);
    while at < len {
        let part = (len - at).min(MAX_TRANSFER.load(Ordering::Relaxed));
        // SAFETY: see this function's requirements.
        match unsafe { run(descriptor(at, part as u32)) } {
            Outcome::Done(_) => at += part,
            Outcome::Fault(done) if faults < MAX_FAULTS => {
                (at, faults) = (at + done.min(part), faults + 1);
                let step = (len - at).min(STEP);
                cpu(at, step);
                at += step;
            }
            Outcome::Refused if at == 0 => return false,
            Outcome::Fault(_) | Outcome::Refused => {
                cpu(at, len - at);
                return true;
            }
        }
    }
    true
}

/// Compares. Returns a number of bytes that are equal: all, or those up to a difference or a fault. Returns
/// `None` if the device has done nothing.
///
/// # Safety
///
/// As for `memcmp`.
pub(super) unsafe fn compare(a: *const u8, b: *const u8, len: usize) -> Option<usize> {
    let mut at = 0;
    while at < len {
        let part = (len - at).min(MAX_TRANSFER.load(Ordering::Relaxed));
        let descriptor = HwDescriptor {
            command: u32::from(op::COMPARE) << 24,
            src: a.wrapping_add(at).expose_provenance() as u64,
            dst: b.wrapping_add(at).expose_provenance() as u64,
            len: part as u32,
            ..HwDescriptor::default()
        };
        // SAFETY: the descriptor reads parts of the caller's ranges.
        match unsafe { run(descriptor) } {
            Outcome::Done(None) => at += part,
            Outcome::Done(Some(equal)) | Outcome::Fault(equal) => return Some(at + equal.min(part)),
            Outcome::Refused if at == 0 => return None,
            Outcome::Refused => return Some(at),
        }
    }
    Some(at)
}

/// Submits a descriptor, and waits for its end.
///
/// # Safety
///
/// The device may do what the descriptor says.
unsafe fn run(mut descriptor: HwDescriptor) -> Outcome {
    let _blocked = SignalsBlocked::new();
    let take = |free: u32| free.checked_sub(1);
    if ENTRIES.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_err() {
        return Outcome::Refused;
    }
    let record = Record::default();
    descriptor.command |= flag::RECORD_VALID | flag::REPORT;
    descriptor.record = (&raw const record).expose_provenance() as u64;
    // SAFETY: the record lives until the device has written it.
    let outcome = if unsafe { store(&descriptor) } { wait(&record, &descriptor) } else { Outcome::Refused };
    ENTRIES.fetch_add(1, Ordering::Release);
    outcome
}

/// Stores the descriptor to the portal. Returns false if the work queue refused it.
///
/// # Safety
///
/// See [`run`].
unsafe fn store(descriptor: &HwDescriptor) -> bool {
    let portal = PORTAL.load(Ordering::Relaxed);
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    if !SHARED.load(Ordering::Relaxed) {
        // SAFETY: the page is the portal of the work queue. One of its entries is free.
        unsafe { asm!("movdir64b rax, [rdx]", in("rax") portal, in("rdx") descriptor, options(nostack)) };
        return true;
    }
    (0..TRIES).any(|_| {
        let refused: u8;
        // SAFETY: the page is the portal of the work queue. The zero flag says that it refuses.
        unsafe {
            asm!("enqcmd rax, [rdx]", "setz {refused}", in("rax") portal, in("rdx") descriptor,
                refused = out(reg_byte) refused, options(nostack));
        }
        refused == 0
    })
}

fn wait(record: &Record, descriptor: &HwDescriptor) -> Outcome {
    let mut polls = 0_u32;
    let code = loop {
        if let Some(code) = record.take() {
            break code & status::CODE;
        }
        core::hint::spin_loop();
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(1 << 10) {
            system::give_way();
        }
        if polls.is_multiple_of(1 << 20) && is_disabled() {
            FAILURES.store(MAX_FAILURES, Ordering::Relaxed);
            return Outcome::Refused;
        }
    };
    let done = record.done.load(Ordering::Relaxed) as usize;
    match code {
        status::SUCCESS | status::FALSE_PREDICATE => {
            let differs = descriptor.opcode() == op::COMPARE && record.result.load(Ordering::Relaxed) != 0;
            Outcome::Done(differs.then_some(done))
        }
        status::PAGE_FAULT => Outcome::Fault(done),
        _ => {
            FAILURES.fetch_add(1, Ordering::Relaxed);
            Outcome::Refused
        }
    }
}
