//! The five kinds of tasks of an event.
#![expect(unsafe_code, reason = "results go where the program wants them")]

use std::cell::Cell;
use std::ptr;

use crate::door::{Code, c};

/// A kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    NotifySet,
    NotifyAdd,
    WaitEq,
    WaitNeq,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Get, Self::NotifySet, Self::NotifyAdd, Self::WaitEq, Self::WaitNeq];

    pub(super) fn waits(self) -> bool {
        matches!(self, Self::WaitEq | Self::WaitNeq)
    }
}

/// One of something for each kind.
pub(super) struct Kinds<T>([T; 5]);

impl<T> Kinds<T> {
    pub(super) fn new(make: impl FnMut(Kind) -> T) -> Self {
        Self(Kind::ALL.map(make))
    }

    pub(super) fn of(&self, kind: Kind) -> &T {
        &self.0[kind as usize]
    }
}

/// Told how a task ended. The kinds' callbacks differ in the name of the task's type only.
pub(super) type TaskCallback = unsafe extern "C" fn(*mut c::doca_task, c::doca_data, c::doca_data);

/// How tasks of one kind are set up.
#[derive(Clone, Copy)]
pub(super) struct TaskConf {
    pub(super) completed: TaskCallback,
    pub(super) failed: TaskCallback,
    pub(super) tasks: u32,
}

/// What a task does.
pub(crate) struct Job {
    /// What is set, added or waited for.
    operand: Cell<u64>,
    mask: Cell<u64>,
    /// Where the number goes that was read.
    out: Cell<*mut u64>,
    status: Cell<Code>,
    result: Cell<u64>,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            operand: Cell::new(0),
            mask: Cell::new(u64::MAX),
            out: Cell::new(ptr::null_mut()),
            status: Cell::new(c::DOCA_SUCCESS),
            result: Cell::new(0),
        }
    }
}

impl Job {
    pub(super) fn reset(&self) {
        self.operand.set(0);
        self.mask.set(u64::MAX);
        self.out.set(ptr::null_mut());
    }

    pub(super) fn operand(&self) -> u64 {
        self.operand.get()
    }

    pub(super) fn set_operand(&self, operand: u64) {
        self.operand.set(operand);
    }

    pub(super) fn mask(&self) -> u64 {
        self.mask.get()
    }

    pub(super) fn set_mask(&self, mask: u64) {
        self.mask.set(mask);
    }

    pub(super) fn out(&self) -> *mut u64 {
        self.out.get()
    }

    pub(super) fn set_out(&self, out: *mut u64) {
        self.out.set(out);
    }

    pub(super) fn status(&self) -> Code {
        self.status.get()
    }

    /// What is no wait happened like this.
    pub(super) fn finish(&self, status: Code, result: u64) {
        self.status.set(status);
        self.result.set(result);
    }

    /// Puts the number where the program wants it.
    pub(super) fn deliver(&self) {
        let out = self.out.get();
        if !out.is_null() {
            // SAFETY: where the program wants a number, until the task ends.
            unsafe { out.write(self.result.get()) }
        }
    }
}

/// A mask that devices know: 0, 1, 2, 4 or 8 bytes of ones in a row.
pub(super) fn is_mask(mask: u64) -> bool {
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
