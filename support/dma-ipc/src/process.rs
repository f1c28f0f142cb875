//! Memory of any kind in another process, accessed through the kernel's file of that process's address space.
//!
//! The exporter opens its own `/proc/self/mem` with the mode that the rights need, and sends it to importers.
//! Therefore importers need no right to trace the exporter. The file belongs to one address space: after the
//! process has ended or executed another program, reads and writes transfer no bytes, even if the process id
//! is in use again. See proc_pid_mem(5).

use std::os::fd::{AsFd as _, OwnedFd};

use dma_core::Access;
use dma_process::above_stdio;
use rustix::fs::{Mode, OFlags, fstatfs, open};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use super::RemoteError;
use crate::proc_maps::{Mapped, mapped};

/// Maximum number of bytes copied under one lease. A revocation may have to wait for such a copy.
pub(super) const CHUNK: usize = 1 << 20;

/// File system type of /proc, from statfs(2).
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// The reason why not all bytes were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The address space no longer exists.
    Gone,
    /// The process has no memory mapped at this offset in bytes.
    Unmapped(usize),
    /// The kernel refused the copy.
    Refused(Errno),
}

/// A range of another process's address space.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    file: OwnedFd,
    address: u64,
}

impl ProcessMemory {
    /// Wraps the memory from `address` on in the address space `file`. Returns `None` if `file` is not a file
    /// of /proc.
    pub(super) fn new(file: OwnedFd, address: u64) -> Option<Self> {
        let is_proc = fstatfs(file.as_fd()).is_ok_and(|fs| fs.f_type as u64 == PROC_SUPER_MAGIC);
        is_proc.then_some(Self { file, address })
    }

    /// Copies the bytes from `offset` on to `to`. Before an error, a part may have been copied.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Cut> {
        let mut done = 0;
        while done < to.len() {
            let at = self.address + offset + done as u64;
            done += step(pread(&self.file, &mut to[done..], at), done)?;
        }
        Ok(())
    }

    /// Copies `from` to the bytes from `offset` on. Before an error, a part may have been copied.
    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Cut> {
        let mut done = 0;
        while done < from.len() {
            let at = self.address + offset + done as u64;
            done += step(pwrite(&self.file, &from[done..], at), done)?;
        }
        Ok(())
    }
}

/// Converts the result of one system call, before which `done` bytes were copied. Returns the number of bytes
/// that the call copied.
fn step(moved: Result<usize, Errno>, done: usize) -> Result<usize, Cut> {
    match moved {
        Ok(0) => Err(Cut::Gone),
        Ok(moved) => Ok(moved),
        Err(Errno::INTR) => Ok(0),
        Err(Errno::IO | Errno::FAULT) => Err(Cut::Unmapped(done)),
        Err(errno) => Err(Cut::Refused(errno)),
    }
}

/// Opens this process's address space for a peer with `rights`.
pub(super) fn own_address_space(rights: Access) -> Result<OwnedFd, RemoteError> {
    let mode = match (rights.contains(Access::READ), rights.contains(Access::WRITE)) {
        (_, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (true, true) => OFlags::RDWR,
    };
    let file = retry_on_intr(|| open("/proc/self/mem", mode | OFlags::CLOEXEC, Mode::empty()));
    file.map(above_stdio).map_err(|errno| {
        let operation = match errno {
            Errno::ACCESS | Errno::PERM => {
                "opening /proc/self/mem (the process may be undumpable because of a set-user-id bit or prctl)"
            }
            _ => "opening /proc/self/mem",
        };
        RemoteError::os(operation, errno)
    })
}

/// Checks that all `len` bytes at `address` are mapped with `rights`, as registering them with a device
/// would. The check is needed because the kernel's file allows writes to read-only memory.
pub(super) fn check_mapped(address: u64, len: u64, rights: Access) -> Result<(), RemoteError> {
    let writable = rights.contains(Access::WRITE);
    match mapped(address, len, writable) {
        Ok(Mapped::Whole) => Ok(()),
        Ok(Mapped::Missing | Mapped::Denied) => Err(RemoteError::NotMapped { address, len, writable }),
        Err(source) => Err(RemoteError::Os { operation: "reading /proc/self/maps", source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_memory_is_there_as_it_is_mapped() {
        let heap = vec![1_u8; 100];
        let at = |bytes: &[u8]| (bytes.as_ptr().addr() as u64, bytes.len() as u64);
        let (address, len) = at(&heap);
        check_mapped(address, len, Access::all()).unwrap();
        let (address, len) = at(b"in a read-only mapping");
        check_mapped(address, len, Access::READ).unwrap();
        let error = check_mapped(address, len, Access::all()).unwrap_err();
        assert!(matches!(error, RemoteError::NotMapped { writable: true, .. }), "{error}");
        check_mapped(8, 1, Access::READ).unwrap_err();
    }

    /// This limits only this file descriptor. A peer with the right to trace this process can open its memory
    /// again with more rights.
    #[test]
    fn the_own_memory_is_opened_for_no_more_than_the_rights() {
        for (rights, mode) in [
            (Access::READ, OFlags::RDONLY),
            (Access::WRITE, OFlags::WRONLY),
            (Access::READ | Access::WRITE, OFlags::RDWR),
        ] {
            let file = own_address_space(rights).unwrap();
            let flags = rustix::fs::fcntl_getfl(&file).unwrap();
            assert_eq!(flags & OFlags::ACCMODE, mode, "{rights:?}");
        }
    }

    #[test]
    fn files_of_other_kinds_are_no_address_space() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(ProcessMemory::new(file.into(), 0).is_none());
        assert!(ProcessMemory::new(own_address_space(Access::READ).unwrap(), 0).is_some());
    }
}
