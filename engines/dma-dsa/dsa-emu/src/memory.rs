//! Accesses to memory of the program that may not be there: they end early instead of ending the process.
#![expect(unsafe_code, reason = "accesses addresses that descriptors name")]

use std::arch::global_asm;

// The trap handler continues at the end when the string instruction faults, with the fault in RDX.
global_asm!(
    ".pushsection .text",
    ".p2align 4",
    ".globl dsa_emu_move, dsa_emu_move_at, dsa_emu_move_end",
    ".hidden dsa_emu_move, dsa_emu_move_at, dsa_emu_move_end",
    ".type dsa_emu_move, @function",
    "dsa_emu_move:",
    "mov rcx, rdx",
    "xor edx, edx",
    "dsa_emu_move_at:",
    "rep movsb",
    "dsa_emu_move_end:",
    "mov rax, rcx",
    "ret",
    ".size dsa_emu_move, . - dsa_emu_move",
    ".popsection",
);

unsafe extern "C" {
    fn dsa_emu_move(to: u64, from: u64, len: usize) -> Moved;
    static dsa_emu_move_at: u8;
    static dsa_emu_move_end: u8;
}

#[repr(C)]
struct Moved {
    left: usize,
    fault: u64,
}

/// An access that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The bytes before it.
    pub(crate) done: usize,
    /// The page.
    pub(crate) page: u64,
    pub(crate) write: bool,
}

/// Bits of an address that are the place in its page. Bit 0 says in [`Moved::fault`] that it was a write.
const PAGE_BITS: u64 = 0xfff;

/// If `rip` is where [`move_bytes`] accesses memory, returns where it goes on, and its register RDX.
pub(crate) fn recover(rip: u64, addr: u64, write: bool) -> Option<(u64, u64)> {
    // The address of the code is all that is taken.
    (rip == (&raw const dsa_emu_move_at).addr() as u64)
        .then(|| ((&raw const dsa_emu_move_end).addr() as u64, addr & !PAGE_BITS | u64::from(write)))
}

/// Copies `len` bytes, upwards.
///
/// # Safety
///
/// The trap handler is installed. Nobody relies on the bytes at `to`, or on their not changing.
pub(crate) unsafe fn move_bytes(to: u64, from: u64, len: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise; a fault ends it.
    let Moved { left, fault } = unsafe { dsa_emu_move(to, from, len) };
    match left {
        0 => Ok(()),
        left => Err(Fault { done: len - left, page: fault & !PAGE_BITS, write: fault & 1 == 1 }),
    }
}

/// Copies bytes of the program, as many as there are.
///
/// # Safety
///
/// The trap handler is installed.
pub(crate) unsafe fn read(from: u64, to: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: `to` is ours.
    unsafe { move_bytes(to.as_mut_ptr().expose_provenance() as u64, from, to.len()) }
}

/// Copies bytes to the program, as many as there is room for.
///
/// # Safety
///
/// As for [`move_bytes`].
pub(crate) unsafe fn write(to: u64, from: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { move_bytes(to, from.as_ptr().expose_provenance() as u64, from.len()) }
}
