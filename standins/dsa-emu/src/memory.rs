//! Accesses to the program's memory, which may be unmapped: a fault ends the access early, not the process.
#![expect(unsafe_code, reason = "accesses addresses that descriptors name")]

use std::arch::global_asm;
use std::ffi::c_int;
use std::mem::MaybeUninit;

// If the instruction at an `_at` label faults, the trap handler writes the fault to the address in R8, and
// continues at the `_end` label.
global_asm!(
    ".pushsection .text",
    ".p2align 4",
    ".globl dsa_emu_move, dsa_emu_move_at, dsa_emu_move_end",
    ".hidden dsa_emu_move, dsa_emu_move_at, dsa_emu_move_end",
    ".type dsa_emu_move, @function",
    "dsa_emu_move:",
    "mov r8, rcx",
    "mov rcx, rdx",
    "dsa_emu_move_at:",
    "rep movsb",
    "dsa_emu_move_end:",
    "mov rax, rcx",
    "ret",
    ".size dsa_emu_move, . - dsa_emu_move",
    ".p2align 4",
    ".globl dsa_emu_touch, dsa_emu_touch_at, dsa_emu_touch_end",
    ".hidden dsa_emu_touch, dsa_emu_touch_at, dsa_emu_touch_end",
    ".type dsa_emu_touch, @function",
    "dsa_emu_touch:",
    "mov r8, rsi",
    "mov eax, 1",
    "dsa_emu_touch_at:",
    "lock or byte ptr [rdi], 0",
    "xor eax, eax",
    "dsa_emu_touch_end:",
    "ret",
    ".size dsa_emu_touch, . - dsa_emu_touch",
    ".popsection",
);

unsafe extern "C" {
    /// Copies bytes. Returns the number of bytes that are left. If bytes are left, `fault` has been written.
    fn dsa_emu_move(to: u64, from: u64, len: usize, fault: &mut MaybeUninit<Fault>) -> usize;
    static dsa_emu_move_at: u8;
    static dsa_emu_move_end: u8;
    /// Writes to a byte without changing it. Returns 0, or 1 if the access faulted; then `fault` has been
    /// written.
    fn dsa_emu_touch(at: u64, fault: &mut MaybeUninit<Fault>) -> u32;
    static dsa_emu_touch_at: u8;
    static dsa_emu_touch_end: u8;
}

/// Returns true if two ranges of `len` bytes overlap.
pub(crate) const fn overlap(a: u64, b: u64, len: u64) -> bool {
    a.abs_diff(b) < len
}

/// An access that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fault {
    /// Number of bytes before the fault.
    pub(crate) done: usize,
    pub(crate) address: u64,
    pub(crate) write: bool,
    /// The signal that the system raised, and its code.
    pub(crate) signal: c_int,
    pub(crate) code: c_int,
}

impl Fault {
    /// Returns the fault of an access to an address without a mapping.
    pub(crate) const fn unmapped(address: u64, write: bool) -> Self {
        Self { done: 0, address, write, signal: libc::SIGSEGV, code: SEGV_MAPERR }
    }

    /// Returns a general protection fault, which has no address.
    pub(crate) const fn protection() -> Self {
        Self { code: SI_KERNEL, ..Self::unmapped(0, false) }
    }

    /// Returns the address of the page in which the access faulted.
    pub(crate) const fn page(&self) -> u64 {
        self.address & !0xfff
    }
}

/// `si_code` of an address without a mapping (`asm-generic/siginfo.h`).
const SEGV_MAPERR: c_int = 1;
/// `si_code` of a signal that the kernel raised without an address (`asm-generic/siginfo.h`).
pub(crate) const SI_KERNEL: c_int = 0x80;

/// If `rip` is an instruction of this module that accesses the program's memory, returns the address at which
/// the code continues after a fault.
pub(crate) fn recover(rip: u64) -> Option<u64> {
    // Only the addresses of these symbols are used; they are not read.
    let accesses = [
        (&raw const dsa_emu_move_at, &raw const dsa_emu_move_end),
        (&raw const dsa_emu_touch_at, &raw const dsa_emu_touch_end),
    ];
    accesses.into_iter().find(|(at, _)| rip == at.addr() as u64).map(|(_, end)| end.addr() as u64)
}

/// Copies `len` bytes, from the lowest address to the highest.
///
/// # Safety
///
/// The trap handler is installed. No code relies on the bytes at `to` staying unchanged.
pub(crate) unsafe fn move_bytes(to: u64, from: u64, len: usize) -> Result<(), Fault> {
    let mut fault = MaybeUninit::uninit();
    // SAFETY: the caller allows the bytes at `to` to change. An address without a mapping ends the copy,
    // because the trap handler is installed.
    match unsafe { dsa_emu_move(to, from, len, &mut fault) } {
        0 => Ok(()),
        // SAFETY: bytes are left because of a fault, which the handler wrote.
        left => Err(Fault { done: len - left, ..unsafe { fault.assume_init() } }),
    }
}

/// Checks that the byte at an address is writable, without changing it.
///
/// # Safety
///
/// The trap handler is installed.
pub(crate) unsafe fn touch(at: u64) -> Result<(), Fault> {
    let mut fault = MaybeUninit::uninit();
    // SAFETY: the atomic operation changes no byte. A fault ends it, because the trap handler is installed.
    match unsafe { dsa_emu_touch(at, &mut fault) } {
        0 => Ok(()),
        // The access was a write, although QEMU may report a read.
        // SAFETY: the access faulted, so the handler has written `fault`.
        _ => Err(Fault { write: true, ..unsafe { fault.assume_init() } }),
    }
}

/// Copies bytes of the program, up to the first unmapped address.
///
/// # Errors
///
/// An address is not mapped.
///
/// # Safety
///
/// The trap handler is installed.
pub unsafe fn read(from: u64, to: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: `to` is borrowed for writing, and the caller has installed the handler.
    unsafe { move_bytes(to.as_mut_ptr().expose_provenance() as u64, from, to.len()) }
}

/// Copies bytes to the program, up to the first address that may not be written.
///
/// # Safety
///
/// The requirements are those of [`move_bytes`].
pub(crate) unsafe fn write(to: u64, from: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller allows the bytes at `to` to change, and has installed the handler. `from` is
    // borrowed.
    unsafe { move_bytes(to, from.as_ptr().expose_provenance() as u64, from.len()) }
}
