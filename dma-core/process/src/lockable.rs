//! The limit of locked memory.

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Returns the number of bytes that this process may lock in memory or pin for a device (`RLIMIT_MEMLOCK`,
/// `ulimit -l`), including those that it has locked. Returns `None` without a limit, and for a process that
/// may exceed its limit (`CAP_IPC_LOCK`).
#[must_use]
pub fn memlock_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Memlock).current?;
    let may_exceed = capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK));
    (!may_exceed).then_some(limit)
}
