//! Tables from pages of 2 MiB to numbers, read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of address bits within a page.
pub(crate) const SHIFT: u32 = 21;
/// Size of a page, in bytes.
pub(crate) const PAGE: u64 = 1 << SHIFT;
/// Number of bits of a program's addresses.
pub(crate) const ADDRESS_BITS: u32 = 47;
/// Range of the addresses that devices use. Address 0 is never used.
pub(crate) const ADDRESSES: std::ops::Range<u64> = 4096..1 << ADDRESS_BITS;
/// Number of bits of the addresses that SPDK's maps support (`SHIFT_256TB`).
pub(crate) const SPDK_ADDRESS_BITS: u32 = 48;

/// Number of pages of a leaf, which covers 1 GiB.
const LEAF: usize = 1 << 9;
const LEAVES: usize = 1 << (ADDRESS_BITS - SHIFT - 9);

/// A number for each page of the address space; 0 stands for no number.
pub(crate) struct Table {
    leaves: [OnceLock<Box<[AtomicU64; LEAF]>>; LEAVES],
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { leaves: [const { OnceLock::new() }; LEAVES] }
    }

    /// Returns the number of the page that holds an address.
    #[inline]
    pub(crate) fn get(&self, addr: u64) -> u64 {
        let page = (addr >> SHIFT) as usize;
        match self.leaves.get(page / LEAF).and_then(OnceLock::get) {
            Some(leaf) => leaf[page % LEAF].load(Ordering::Acquire),
            None => 0,
        }
    }

    /// Sets the number of the page that holds an address. The address must have at most
    /// [`ADDRESS_BITS`] bits.
    pub(crate) fn set(&self, addr: u64, number: u64) {
        let page = (addr >> SHIFT) as usize;
        let leaf = self.leaves[page / LEAF].get_or_init(|| Box::new([const { AtomicU64::new(0) }; LEAF]));
        leaf[page % LEAF].store(number, Ordering::Release);
    }
}
