//! Tables from pages of 2 MiB to numbers, read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of an address within a page.
pub(crate) const SHIFT: u32 = 21;
/// A page's size.
pub(crate) const PAGE: u64 = 1 << SHIFT;
/// Bits of the addresses that programs have.
pub(crate) const ADDRESS_BITS: u32 = 47;
/// Range of the addresses that devices are given. Nothing is at 0.
pub(crate) const ADDRESSES: std::ops::Range<u64> = 4096..1 << ADDRESS_BITS;
/// Bits of the addresses that SPDK's maps look up (`SHIFT_256TB`).
pub(crate) const SPDK_ADDRESS_BITS: u32 = 48;

/// Pages of a leaf: 1 GiB.
const LEAF: usize = 1 << 9;
const LEAVES: usize = 1 << (ADDRESS_BITS - SHIFT - 9);

/// A number for each page of the address space; 0 where there is none.
pub(crate) struct Table {
    leaves: [OnceLock<Box<[AtomicU64; LEAF]>>; LEAVES],
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { leaves: [const { OnceLock::new() }; LEAVES] }
    }

    /// The number of the page that holds an address.
    #[inline]
    pub(crate) fn get(&self, addr: u64) -> u64 {
        let page = (addr >> SHIFT) as usize;
        match self.leaves.get(page / LEAF).and_then(OnceLock::get) {
            Some(leaf) => leaf[page % LEAF].load(Ordering::Acquire),
            None => 0,
        }
    }

    /// Sets the number of the page that holds an address, which must be one of a program.
    pub(crate) fn set(&self, addr: u64, number: u64) {
        let page = (addr >> SHIFT) as usize;
        let leaf = self.leaves[page / LEAF].get_or_init(|| Box::new([const { AtomicU64::new(0) }; LEAF]));
        leaf[page % LEAF].store(number, Ordering::Release);
    }
}
