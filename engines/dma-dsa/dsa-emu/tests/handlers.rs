//! The handlers of a program keep working behind those of the stand-in. Alone in its process, because the
//! handlers are the process's.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#![expect(unsafe_code, reason = "signal handlers, and faults that they mend")]

use std::sync::atomic::{AtomicUsize, Ordering};

use dsa_emu::Emu;

static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// Makes the page readable.
extern "C" fn mend(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    FAULTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the system's description of a fault,
    let info = unsafe { &*info };
    // SAFETY: which has an address.
    let page = unsafe { info.si_addr() }.map_addr(|at| at & !0xfff);
    // SAFETY: the page that this program maps below.
    unsafe { libc::mprotect(page, 4096, libc::PROT_READ) };
}

#[test]
fn faults_of_the_program_reach_its_own_handler() {
    // SAFETY: all zeroes is an action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = mend as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: a handler that does what handlers may.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) }, 0);
    let _emu = Emu::start("").unwrap();
    // SAFETY: the kernel chooses an unused place for the new mapping.
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
        // SAFETY: the handler makes the page readable.
        assert_eq!(unsafe { page.cast::<u8>().read_volatile() }, 0);
        assert_eq!(FAULTS.load(Ordering::Relaxed), faults);
    }
    // SIGILL has the default action: it ends a process.
    // SAFETY: the child runs one instruction.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: raises SIGILL.
        unsafe { std::arch::asm!("ud2") };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGILL, "{status:#x}");
}
