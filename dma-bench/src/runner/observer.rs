//! [`Observer`]: receives the progress of a run.

use crate::plan::Cell;
use crate::results::Measured;

/// Receives the progress of a run.
pub trait Observer {
    /// The run begins: `repetitions` are to come, in about `expected` seconds.
    fn begin(&mut self, repetitions: u64, expected: f64);
    /// The run will have so many repetitions fewer.
    fn fewer(&mut self, _repetitions: u64) {}
    /// Something worth knowing about the campaign before it is measured.
    fn note(&mut self, _text: &str) {}
    /// A repetition of this cell has ended, at so many bytes a second. With `model`, these are a simulated
    /// device's.
    fn repetition(&mut self, cell: &Cell, model: bool, bytes_per_second: f64);
    /// `done` of `of` passes over all cells have ended.
    fn pass(&mut self, _done: u32, _of: u32) {}
    /// A cell is complete.
    fn cell(&mut self, measured: &Measured);
    /// The run has ended.
    fn end(&mut self);
}
