//! BAR 0 of a function: memory that its engine watches for as long as somebody has it mapped.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use super::{Function, lock};
use crate::door::{Outcome, Ptr};
use crate::engine::Engine;

/// Its size.
const SIZE: usize = 0x4000;

/// The registers, and what acts on them.
pub(crate) struct Bar {
    engine: Engine,
}

impl Function {
    /// Has the registers mapped once more.
    pub(super) fn map_bar(&'static self) -> Outcome<(Ptr<c_void>, u64)> {
        let mut bar = lock(&self.bar);
        let engine = match &mut *bar {
            Some(bar) => &bar.engine,
            none => &none.insert(Bar { engine: Engine::start(self, SIZE)? }).engine,
        };
        self.mapped.fetch_add(1, Relaxed);
        Ok((engine.registers(), SIZE as u64))
    }

    /// Gives one mapping up; with the last the engine ends. False: it is none.
    pub(super) fn unmap_bar(&self, mapped: Ptr<c_void>) -> bool {
        let mut bar = lock(&self.bar);
        if bar.as_ref().is_none_or(|bar| bar.engine.registers().raw() != mapped.raw()) {
            return false;
        }
        if self.mapped.fetch_sub(1, Relaxed) == 1 {
            *bar = None;
            self.release(false);
        }
        true
    }
}
