//! Tests signals that arrive while a trap is handled.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#![expect(unsafe_code, reason = "installs signal handlers, and stores to a portal")]

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dsa_emu::Emu;

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

/// A no-op descriptor without a completion record.
#[repr(align(64))]
struct Nop([u64; 8]);

/// The thread's alternate stack comes from Rust's standard library. That stack has no room for the frames of
/// three signals.
#[test]
fn a_signal_waits_until_the_trap_has_ended() {
    // SAFETY: a `sigaction` of zero bytes is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: the handler makes only calls that are allowed in a signal handler.
        assert_eq!(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }, 0);
    }
    let emu = Emu::start("size = 128").unwrap();
    let file = std::fs::File::options().read(true).write(true).open(emu.dev_dir().join("wq0.0")).unwrap();
    let (rights, fd) = (libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let portal = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, fd, 0) };
    assert_ne!(portal, libc::MAP_FAILED);
    // SAFETY: the call accesses no memory of the program.
    let submitter = unsafe { libc::pthread_self() };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sent in (2..).step_by(2) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                for signal in [libc::SIGUSR1, libc::SIGUSR2] {
                    // SAFETY: the thread that receives the signals runs until this thread has ended.
                    assert_eq!(unsafe { libc::pthread_kill(submitter, signal) }, 0);
                }
                while SIGNALS.load(Ordering::SeqCst) < sent {
                    std::thread::yield_now();
                }
            }
        });
        let nop = Nop([0; 8]);
        while SIGNALS.load(Ordering::SeqCst) < 2000 {
            // SAFETY: the store is to a portal, and the handler emulates it. The bytes are MOVDIR64B with
            // these registers.
            unsafe {
                std::arch::asm!(
                    ".byte 0x66, 0x0f, 0x38, 0xf8, 0x02",
                    in("rax") portal,
                    in("rdx") nop.0.as_ptr(),
                    options(nostack)
                );
            }
        }
        ended.store(true, Ordering::SeqCst);
    });
    assert!(emu.submissions("wq0.0") > 0);
}
