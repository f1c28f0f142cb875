//! Tests with synthetic contexts, and with stores that trap.

use super::*;
use crate::Emu;
use crate::descriptor::{flag, op};

const MOVDIR64B: [u8; 5] = [0x66, 0x0f, 0x38, 0xf8, 0x02];
const ENQCMD: [u8; 5] = [0xf2, 0x0f, 0x38, 0xf8, 0x02];
const ENQCMDS: [u8; 5] = [0xf3, 0x0f, 0x38, 0xf8, 0x02];
/// All flags that ENQCMD sets or clears, and the interrupt flag, which ENQCMD does not change.
const ALL_FLAGS: u64 = 0x8d5 | 0x200;

/// Maps a portal with these rights.
fn map(emu: &Emu, rights: c_int) -> *mut u8 {
    let file = std::fs::File::options().read(true).write(true).open(emu.dev_dir().join("wq0.0")).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let page = unsafe { libc::mmap(ptr::null_mut(), 4096, rights, libc::MAP_SHARED, fd, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

/// A no-op with a completion record.
fn nop(record: &mut [u8; 64]) -> (Descriptor, *const u8) {
    let record = record.as_mut_ptr();
    let record = record.map_addr(|at| at.next_multiple_of(32));
    let command = u64::from(op::NOP) << 24 | u64::from(flag::RECORD_VALID | flag::REPORT);
    (Descriptor([command << 32, record.expose_provenance() as u64, 0, 0, 0, 0, 0, 0]), record)
}

fn wait(record: *const u8) -> u8 {
    loop {
        // SAFETY: the record outlives the wait.
        match unsafe { record.read_volatile() } {
            0 => std::thread::yield_now(),
            status => return status,
        }
    }
}

/// Passes an instruction that stores from RDX to RAX to the handler of SIGILL. Returns the outcome of the
/// trap, the distance by which the program skips, and the flags afterwards.
fn run(code: u64, to: u64, from: u64) -> (Trap, u64, u64) {
    // SAFETY: a context of zero bytes is valid.
    let mut context: ucontext_t = unsafe { mem::zeroed() };
    // SAFETY: a `siginfo_t` of zero bytes is valid.
    let mut info: siginfo_t = unsafe { mem::zeroed() };
    info.si_signo = libc::SIGILL;
    let mut registers = Context(&mut context);
    for (register, value) in [(REG_RIP, code), (libc::REG_RAX, to), (REG_RDX, from), (REG_EFL, ALL_FLAGS)] {
        registers.set(register, value);
    }
    let trap = emulate(&info, &mut context);
    let registers = Context(&mut context);
    (trap, registers.get(REG_RIP) - code, registers.get(REG_EFL))
}

fn address<T>(of: &T) -> u64 {
    ptr::from_ref(of).expose_provenance() as u64
}

#[test]
fn instructions_are_taken_on_any_processor() {
    for (mode, works, refused) in [("dedicated", MOVDIR64B, ENQCMD), ("shared", ENQCMD, MOVDIR64B)] {
        let emu = Emu::start(&format!("mode = '{mode}'")).unwrap();
        let to = map(&emu, libc::PROT_NONE).expose_provenance() as u64;
        let mut record = [0; 64];
        let (nop, record) = nop(&mut record);
        let from = address(&nop);
        // ENQCMD sets the zero flag after a refusal; MOVDIR64B does not change the flags.
        let taken = if works == ENQCMD { 0x200 } else { ALL_FLAGS };
        assert_eq!(run(address(&works), to + 0xfc0, from), (Trap::Emulated, 5, taken), "{mode}");
        assert_eq!(wait(record), 1);
        let not_taken = if refused == ENQCMD { 0x240 } else { ALL_FLAGS };
        assert_eq!(run(address(&refused), to, from), (Trap::Emulated, 5, not_taken), "{mode}");
        let protection = || Trap::Faulted(Fault::protection());
        for (code, to, from, end, why) in [
            (address(&ENQCMDS), to, from, protection(), "for the kernel"),
            (address(&works), to + 8, from, protection(), "not aligned"),
            (address(&works), 128, from, Fault::unmapped(128, true).into(), "no destination"),
            (address(&works), to, 64, Fault::unmapped(64, false).into(), "no descriptor"),
            (16, to, from, Trap::Other, "no code"),
            (u64::MAX / 2, to, from, Trap::Other, "an address that no processor has"),
        ] {
            assert_eq!(run(code, to, from), (end, 0, ALL_FLAGS), "{why}");
        }
        assert_eq!(emu.submissions("wq0.0"), 1);
    }
}

/// Each instruction also runs with LOCK, which makes it undefined on every processor.
#[test]
fn stores_trap_however_the_portal_is_mapped() {
    for (mode, rights, undefined) in ["dedicated", "shared"].into_iter().flat_map(|mode| {
        [libc::PROT_NONE, libc::PROT_WRITE]
            .into_iter()
            .flat_map(move |rights| [(mode, rights, false), (mode, rights, true)])
    }) {
        let emu = Emu::start(&format!("mode = '{mode}'")).unwrap();
        let to = map(&emu, rights);
        let mut record = [0; 64];
        let (nop, record) = nop(&mut record);
        macro_rules! store {
            ($code:literal) => {{
                let refused: u8;
                // SAFETY: the store is to a portal, and the handler emulates it.
                unsafe {
                    std::arch::asm!(
                        // TEST clears the zero flag, because the address is not null.
                        "test rdx, rdx",
                        concat!(".byte ", $code),
                        "setz {refused}",
                        in("rax") to,
                        in("rdx") &nop,
                        refused = out(reg_byte) refused,
                        options(nostack)
                    );
                }
                assert_eq!(refused, 0);
            }};
        }
        match (mode, undefined) {
            ("dedicated", false) => store!("0x66, 0x0f, 0x38, 0xf8, 0x02"),
            ("dedicated", true) => store!("0xf0, 0x66, 0x0f, 0x38, 0xf8, 0x02"),
            (_, false) => store!("0xf2, 0x0f, 0x38, 0xf8, 0x02"),
            (_, true) => store!("0xf0, 0xf2, 0x0f, 0x38, 0xf8, 0x02"),
        }
        assert_eq!(wait(record), 1, "{mode}, rights {rights}");
    }
}
