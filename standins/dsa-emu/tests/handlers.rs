//! Tests that a program's signal handlers still work after the stand-in has installed its own. The test has a
//! process of its own, because handlers belong to the process.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#![expect(unsafe_code, reason = "installs signal handlers, which repair faults")]

use std::sync::atomic::{AtomicUsize, Ordering};

use dsa_emu::Emu;

static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// Makes the page readable.
extern "C" fn mend(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    FAULTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the system passes a valid description of a fault.
    let info = unsafe { &*info };
    // SAFETY: the signal is a memory fault, which has an address.
    let page = unsafe { info.si_addr() }.map_addr(|at| at & !0xfff);
    // SAFETY: the test below has mapped the page.
    unsafe { libc::mprotect(page, 4096, libc::PROT_READ) };
}

#[test]
fn faults_of_the_program_reach_its_own_handler() {
    // SAFETY: a `sigaction` of zero bytes is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = mend as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler makes only calls that are allowed in a signal handler.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) }, 0);
    let _emu = Emu::start("").unwrap();
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    for faults in [1, 1] {
        // SAFETY: the load faults, and the handler then makes the page readable.
        assert_eq!(unsafe { page.cast::<u8>().read_volatile() }, 0);
        assert_eq!(FAULTS.load(Ordering::Relaxed), faults);
    }
    // SIGILL has the default action, so it ends a process.
    // SAFETY: the child runs only one instruction, so it needs no lock of another thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: UD2 only raises SIGILL.
        unsafe { std::arch::asm!("ud2") };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` is valid for the write.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGILL, "{status:#x}");
}
