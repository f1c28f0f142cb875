//! The limits of the process on resources.
#![expect(unsafe_code, reason = "asks the C library, whose answer can be an error")]

use rustix::process::Resource;

/// Returns the process's soft limit. Returns `None` without a limit, and in a sandbox that forbids the call,
/// which `rustix::process::getrlimit` cannot report.
pub(crate) fn resource_limit(resource: Resource) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer to the local variable is valid during the call.
    let asked = unsafe { libc::getrlimit(resource as _, &raw mut limit) } == 0;
    (asked && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
