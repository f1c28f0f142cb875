//! [`Job`]: the body of an event's tasks.

use std::cell::Cell;

use crate::c_abi::{Code, Out, c};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    NotifySet,
    NotifyAdd,
    WaitEq,
    WaitNeq,
    /// Only DOCA 2.5 has calls of this kind.
    WaitGt,
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Get, Self::NotifySet, Self::NotifyAdd, Self::WaitEq, Self::WaitNeq, Self::WaitGt];

    pub(super) fn waits(self) -> bool {
        matches!(self, Self::WaitEq | Self::WaitNeq | Self::WaitGt)
    }
}

pub(super) struct Kinds<T>([T; 6]);

impl<T> Kinds<T> {
    pub(super) fn new(make: impl FnMut(Kind) -> T) -> Self {
        Self(Kind::ALL.map(make))
    }

    pub(super) fn of(&self, kind: Kind) -> &T {
        &self.0[kind as usize]
    }
}

pub(crate) struct Job {
    /// Number to set, add or wait for.
    pub(super) operand: Cell<u64>,
    pub(super) mask: Cell<u64>,
    pub(super) out: Cell<Out<u64>>,
    pub(super) status: Cell<Code>,
    result: Cell<u64>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            operand: Cell::new(0),
            mask: Cell::new(u64::MAX),
            out: Cell::new(Out::default()),
            status: Cell::new(c::DOCA_SUCCESS),
            result: Cell::new(0),
        }
    }
}

impl Job {
    pub(super) fn reset(&self) {
        self.operand.set(0);
        self.mask.set(u64::MAX);
        self.out.set(Out::default());
    }

    pub(super) fn finish(&self, status: Code, result: u64) {
        self.status.set(status);
        self.result.set(result);
    }

    pub(super) fn deliver(&self) {
        self.out.get().put_if(self.result.get());
    }
}

/// Returns true for a mask that devices accept: 0, 1, 2, 4 or 8 consecutive bytes of ones.
pub(crate) fn is_mask(mask: u64) -> bool {
    let bytes = mask.to_le_bytes();
    let ones = bytes.iter().filter(|&&byte| byte == 0xff).count();
    let whole = bytes.iter().all(|&byte| byte == 0 || byte == 0xff);
    let first = bytes.iter().position(|&byte| byte == 0xff).unwrap_or(0);
    let in_a_row = bytes[first..].iter().take_while(|&&byte| byte == 0xff).count() == ones;
    whole && in_a_row && matches!(ones, 0 | 1 | 2 | 4 | 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_bytes_of_ones_in_a_row() {
        for mask in [0, 0xff, 0xff00, 0xffff_0000, 0x00ff_ffff_ff00, 0xffff_ffff, u64::MAX] {
            assert!(is_mask(mask), "{mask:#x}");
        }
        for mask in [1, 0xf0, 0xff_00ff, 0xff_ffff, u64::MAX - 1, 0x00ff_ffff_ffff_0000, u64::MAX >> 8] {
            assert!(!is_mask(mask), "{mask:#x}");
        }
    }
}
