//! The configuration space of a function.

use crate::c_abi::c::{spdk_pci_addr, spdk_pci_id};

/// Size of the configuration space, in bytes.
pub(super) const SIZE: usize = 4096;

/// Byte offset of the extended capabilities. The serial number is the only one.
const EXTENDED: usize = 0x100;
/// Byte offset of I/OAT's error register CHANERR_INT. Writing ones clears its bits.
const CHANERR_INT: usize = 0x180;

/// The bytes of the configuration space. Programs can write only a few of them.
#[derive(Debug)]
pub(super) struct Space(Box<[u8; SIZE]>);

impl Space {
    pub(super) fn new(id: &spdk_pci_id, addr: &spdk_pci_addr) -> Self {
        let mut space = Self(Box::new([0; SIZE]));
        space.set(0x00, &id.vendor_id.to_le_bytes());
        space.set(0x02, &id.device_id.to_le_bytes());
        // The memory space is enabled.
        space.set(0x04, &0x0002_u16.to_le_bytes());
        space.set(0x09, &id.class_id.to_le_bytes()[..3]);
        // BAR 0 is a 64-bit memory BAR.
        space.set(0x10, &0x4_u32.to_le_bytes());
        space.set(0x2c, &id.subvendor_id.to_le_bytes());
        space.set(0x2e, &id.subdevice_id.to_le_bytes());
        // Capability "device serial number", version 1. It is the last capability.
        space.set(EXTENDED, &0x0001_0003_u32.to_le_bytes());
        let place = u32::from(addr.bus) << 8 | u32::from(addr.dev) << 3 | u32::from(addr.func);
        space.set(EXTENDED + 4, &place.to_le_bytes());
        space.set(EXTENDED + 8, &addr.domain.to_le_bytes());
        space
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the `len` bytes at an offset. Returns `None` if they exceed the space.
    pub(super) fn read(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.0.get(at..at.checked_add(len)?)
    }

    /// Writes bytes. Read-only bytes keep their values. Returns `None` if the bytes exceed the space.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        self.read(at, bytes.len())?;
        for (at, byte) in (at..).zip(bytes) {
            match at {
                // Command, cache line size, latency timer, interrupt line.
                0x04 | 0x05 | 0x0c | 0x0d | 0x3c => self.0[at] = *byte,
                _ if (CHANERR_INT..CHANERR_INT + 4).contains(&at) => self.0[at] &= !*byte,
                _ => {}
            }
        }
        Some(())
    }
}
