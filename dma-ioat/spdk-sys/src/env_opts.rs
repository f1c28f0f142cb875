//! [`EnvOpts`]: the options of `spdk_env_init`, compatible with every release.
#![expect(unsafe_code, reason = "writes fields into a block that SPDK reads as its struct")]

use std::ffi::{CString, c_char};
use std::mem::offset_of;

use crate::bindings::{spdk_env_opts, spdk_pci_addr};
use crate::{Library, Release};

/// Length of the block in words of 8 bytes: four times the largest struct so far.
const WORDS: usize = 64;

/// Byte offset of `opts_size`, which SPDK 24.09 introduced. Before 24.09, the struct ended at this offset.
/// The offsets of all earlier fields are the same since 23.05.
const OPTS_SIZE: usize = 112;

/// The options of `spdk_env_init`.
///
/// SPDK's struct grows from release to release, and `spdk_env_opts_init` clears and fills it with the size
/// that the *library* knows. So this type has a zeroed block that is much larger than the struct, and sets
/// `opts_size` before the call. It writes only fields whose offset is the same in all releases from 23.05 on.
#[derive(Debug)]
pub struct EnvOpts {
    block: Box<[u64; WORDS]>,
    // The targets of the block's pointers.
    texts: Vec<CString>,
    allowed: Vec<spdk_pci_addr>,
}

impl EnvOpts {
    /// Returns the library's defaults.
    #[must_use]
    pub fn new(library: &Library) -> Self {
        let mut block = Box::new([0; WORDS]);
        block[OPTS_SIZE / 8] = size_of_val(&*block) as u64;
        // SAFETY: the block is zeroed, aligned like the struct and larger than the struct of any release. Its
        // size is in the field `opts_size`.
        unsafe { (library.env.spdk_env_opts_init)(block.as_mut_ptr().cast()) };
        Self { block, texts: Vec::new(), allowed: Vec::new() }
    }

    fn write<T: Copy>(&mut self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= OPTS_SIZE, "a field in front of `opts_size`");
        let bytes: *mut u8 = self.block.as_mut_ptr().cast();
        // SAFETY: the field is within the block, as asserted.
        let at = unsafe { bytes.add(offset) };
        // SAFETY: the value's bytes are within the block, as asserted, and this value owns the block. The
        // write needs no alignment.
        unsafe { at.cast::<T>().write_unaligned(value) };
    }

    fn write_text(&mut self, offset: usize, text: CString) {
        let pointer: *const c_char = text.as_ptr();
        self.write(offset, pointer);
        self.texts.push(text);
    }

    /// Sets the name of the program in messages of SPDK and DPDK.
    pub fn set_name(&mut self, name: CString) {
        self.write_text(offset_of!(spdk_env_opts, name), name);
    }

    /// Sets the cores: a mask such as `0x3`, or a list such as `[0,2-3]`.
    pub fn set_core_mask(&mut self, cores: CString) {
        self.write_text(offset_of!(spdk_env_opts, core_mask), cores);
    }

    /// Sets the memory in MiB that is reserved when the environment is set up.
    pub fn set_mem_size(&mut self, mib: i32) {
        self.write(offset_of!(spdk_env_opts, mem_size), mib);
    }

    /// Disables huge pages, which requires a memory size.
    pub fn set_no_huge(&mut self, release: Release) {
        if release.soname().is_some_and(|soname| soname < Release::HAS_NO_HUGE) {
            // 23.05 and 23.09 have no such field, so the arguments for DPDK are used. Without `--legacy-mem`,
            // these releases add an argument that DPDK refuses together with `--no-huge`. They also request
            // physical addresses by default.
            self.write_text(offset_of!(spdk_env_opts, env_context), c"--no-huge --legacy-mem".to_owned());
            self.write_text(offset_of!(spdk_env_opts, iova_mode), c"va".to_owned());
        } else {
            self.write(offset_of!(spdk_env_opts, no_huge), true);
        }
    }

    /// Sets the PCI functions that may be used. If `functions` is empty, all functions may be used.
    pub fn set_allowed(&mut self, functions: Vec<spdk_pci_addr>) {
        self.allowed = functions;
        let pointer: *const spdk_pci_addr =
            if self.allowed.is_empty() { std::ptr::null() } else { self.allowed.as_ptr() };
        self.write(offset_of!(spdk_env_opts, num_pci_addr), self.allowed.len());
        self.write(offset_of!(spdk_env_opts, pci_allowed), pointer);
    }

    /// Returns the argument of `spdk_env_init`. It is valid as long as this [`EnvOpts`] exists and does not
    /// change.
    #[must_use]
    pub fn as_ptr(&self) -> *const spdk_env_opts {
        self.block.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_every_release_has_them() {
        // Public header `spdk/env.h` of SPDK 23.05 to 26.05.
        assert_eq!(offset_of!(spdk_env_opts, name), 0);
        assert_eq!(offset_of!(spdk_env_opts, core_mask), 8);
        assert_eq!(offset_of!(spdk_env_opts, mem_size), 36);
        assert_eq!(offset_of!(spdk_env_opts, no_huge), 43);
        assert_eq!(offset_of!(spdk_env_opts, num_pci_addr), 48);
        assert_eq!(offset_of!(spdk_env_opts, pci_allowed), 72);
        assert_eq!(offset_of!(spdk_env_opts, iova_mode), 80);
        assert_eq!(offset_of!(spdk_env_opts, env_context), 96);
        assert_eq!(offset_of!(spdk_env_opts, opts_size), OPTS_SIZE);
        assert!(size_of::<spdk_env_opts>() * 4 <= WORDS * 8);
    }
}
