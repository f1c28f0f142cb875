//! Linux's memory policies, to allocate pages on one node.
#![expect(unsafe_code, reason = "memory policies have no safe wrapper")]

use std::ptr::NonNull;

use super::NumaNodes;
use crate::{Error, ErrorKind, Result};

/// Makes the kernel allocate the pages of a mapping only on `node`, if the machine has several nodes. Pages
/// that are already resident are moved. `start` must be the start of a page.
///
/// # Errors
///
/// `NotFound` for a node that does not exist; `InvalidArgument` if the process may not use it;
/// `PermissionDenied` if a sandbox forbids the call; `Os`.
pub(crate) fn bind(nodes: &NumaNodes, node: u32, start: NonNull<u8>, len: usize) -> Result<()> {
    nodes.core_list(node)?;
    if nodes.numbers().len() == 1 {
        return Ok(());
    }
    system::bind(node, start, len).map_err(|e| refused(node, e))
}

/// Runs `allocate`. If the machine has several nodes, the calling thread's memory policy allocates pages only
/// on `node` during the call.
///
/// # Errors
///
/// The errors of [`bind`] and of `allocate`.
pub(crate) fn with_policy<T>(
    nodes: &NumaNodes,
    node: u32,
    allocate: impl FnOnce() -> Result<T>,
) -> Result<T> {
    nodes.core_list(node)?;
    if nodes.numbers().len() == 1 {
        return allocate();
    }
    let _restored = system::Policy::set(node).map_err(|e| refused(node, e))?;
    allocate()
}

#[cold]
fn refused(node: u32, e: std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, hint) = match e.kind() {
        Io::InvalidInput => (
            ErrorKind::InvalidArgument,
            "name a node with memory that the process may use: Mems_allowed_list in /proc/self/status",
        ),
        Io::PermissionDenied => (
            ErrorKind::PermissionDenied,
            "leave the node out, or allow mbind and set_mempolicy: a container's seccomp profile may forbid them",
        ),
        _ => (ErrorKind::Os, "leave the node out"),
    };
    Error::new(kind, format!("the system does not allocate on NUMA node {node}"))
        .with_source(e)
        .with_hint(hint)
}

mod system {
    use std::ffi::{c_int, c_ulong};
    use std::io::{Error, Result};
    use std::ptr::NonNull;

    /// Maximum number of nodes in a set: the maximum of Linux.
    const MAX_NODES: usize = 1024;
    const BITS: usize = c_ulong::BITS as usize;

    type NodeSet = [c_ulong; MAX_NODES / BITS];

    fn only(node: u32) -> Result<NodeSet> {
        let mut set = NodeSet::default();
        let word = set.get_mut(node as usize / BITS).ok_or_else(|| Error::from_raw_os_error(libc::EINVAL))?;
        *word = 1 << (node as usize % BITS);
        Ok(set)
    }

    /// From `linux/mempolicy.h`: moves the pages that are resident.
    const MPOL_MF_MOVE: std::ffi::c_uint = 1 << 1;
    /// From `linux/mempolicy.h`: returns the policy of an address.
    #[cfg(all(test, not(loom)))]
    const MPOL_F_ADDR: std::ffi::c_uint = 1 << 1;

    /// The number of bits that is passed to Linux, which uses one bit fewer.
    const MAX_NODE: usize = MAX_NODES + 1;

    fn checked(answer: std::ffi::c_long) -> Result<()> {
        if answer == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    }

    pub(super) fn bind(node: u32, start: NonNull<u8>, len: usize) -> Result<()> {
        let (set, at, flags) = (only(node)?, start.as_ptr(), MPOL_MF_MOVE);
        // SAFETY: the kernel reads at most `MAX_NODES` bits of the set, and only during the call. Moving a
        // page to another node does not change the page's address or content.
        checked(unsafe {
            libc::syscall(libc::SYS_mbind, at, len, libc::MPOL_BIND, set.as_ptr(), MAX_NODE, flags)
        })
    }

    /// The previous memory policy of the calling thread. Dropping this value restores it.
    pub(super) struct Policy {
        mode: c_int,
        set: NodeSet,
    }

    impl Policy {
        pub(super) fn set(node: u32) -> Result<Self> {
            let mut before = Self { mode: 0, set: NodeSet::default() };
            let (mode, set) = (&raw mut before.mode, before.set.as_mut_ptr());
            // SAFETY: the kernel writes a mode and a set of at most `MAX_NODES` bits, and both variables are
            // large enough.
            checked(unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, set, MAX_NODE, 0, 0) })?;
            set_policy(libc::MPOL_BIND, &only(node)?)?;
            Ok(before)
        }
    }

    impl Drop for Policy {
        fn drop(&mut self) {
            // Restoring cannot fail, because the policy was valid for this thread before.
            _ = set_policy(self.mode, &self.set);
        }
    }

    fn set_policy(mode: c_int, set: &NodeSet) -> Result<()> {
        // SAFETY: the kernel reads at most `MAX_NODES` bits of the set, and only during the call.
        checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, set.as_ptr(), MAX_NODE) })
    }

    /// Returns the memory policy of an address, or of the calling thread, and the first 64 nodes of the
    /// policy.
    #[cfg(all(test, not(loom)))]
    pub(in crate::memory::numa) fn policy_of(start: Option<NonNull<u8>>) -> Result<(c_int, c_ulong)> {
        let (mut mode, mut set) = (0, NodeSet::default());
        let to = set.as_mut_ptr();
        let (at, flags) = start.map_or((std::ptr::null_mut(), 0), |start| (start.as_ptr(), MPOL_F_ADDR));
        // SAFETY: the kernel writes a mode and a set of at most `MAX_NODES` bits, and both variables are
        // large enough.
        checked(unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, to, MAX_NODE, at, flags) })?;
        Ok((mode, set[0]))
    }
}

#[cfg(all(test, not(loom)))]
pub(super) use system::policy_of;
