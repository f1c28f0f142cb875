//! The limit of locked memory is the kernel's. This test is alone in its process, because it lowers the
//! limit. The sanitizers replace `mlock` with a function that does nothing.
#![cfg(all(target_os = "linux", not(any(dma_address_sanitizer, dma_thread_sanitizer))))]
#![expect(unsafe_code, reason = "locks memory")]

use dma_process::memlock_limit;
use rustix::mm::{mlock, munlock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const LIMIT: usize = 64 << 10;

/// Returns whether the kernel lets this thread lock more memory than the limit.
fn may_exceed() -> bool {
    let mut memory = vec![0_u8; 2 * LIMIT];
    // SAFETY: the range is that of the vector.
    let locked = unsafe { mlock(memory.as_mut_ptr().cast(), memory.len()) }.is_ok();
    if locked {
        // SAFETY: the range is that of the vector.
        unsafe { munlock(memory.as_mut_ptr().cast(), memory.len()) }.expect("it was locked");
    }
    locked
}

#[test]
fn the_limit_is_the_one_that_the_kernel_enforces() {
    let before = getrlimit(Resource::Memlock);
    let set = |current| setrlimit(Resource::Memlock, Rlimit { current, maximum: before.maximum });
    if set(Some(LIMIT as u64)).is_err() {
        return eprintln!("not tested: the limit of this process is below {LIMIT} bytes");
    }
    let expected = |may_exceed: bool| (!may_exceed).then_some(LIMIT as u64);
    assert_eq!(memlock_limit(), expected(may_exceed()));
    // Capabilities belong to the thread. Without this one, the limit applies to every user.
    let mut own = capabilities(None).expect("this thread has capabilities");
    own.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, own).expect("a thread may give up capabilities");
    assert!(!may_exceed());
    assert_eq!(memlock_limit(), Some(LIMIT as u64));
    if before.maximum.is_none() {
        set(None).expect("the limit may rise to its maximum");
        assert!(may_exceed());
        assert_eq!(memlock_limit(), None);
    }
}
