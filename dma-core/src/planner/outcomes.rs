//! [`Outcomes`]: the states of operations, and their ends by completions, refusals and aborts.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::error::Failure;
use crate::deferred_log::{DeferredEvent, log_event};
use crate::{Completion, Counters, NativeError, Outcome};

/// The operations of a queue, with the counts and reasons of their ends.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) ops: Box<[OpState]>,
    /// Failures, by slot and by index in the batch.
    pub(super) failures: BTreeMap<(u32, u32), Failure>,
    /// The counts of operations that had a slot. See [`counters`](Self::counters).
    pub(super) counters: Counters,
    /// Number of operations that were executed in the calls that submitted them. They are not in `counters`,
    /// because then each of them would add to `submitted` and to `completed`.
    executed: u64,
    /// Events that the layer above logs.
    pub(crate) log_events: Vec<LogEvent>,
}

/// The state of one operation or batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpState {
    /// Number of submitted or pending descriptors that have not been reported.
    pub(super) descriptors: u32,
    /// Number of deferred operations that have not been split completely.
    pub(super) deferred: u32,
    /// Number of operations: more than 1 for a batch.
    pub(super) operations: u32,
    pub(super) phase: Phase,
    /// True if the planner must report the end of the operation to the layer above.
    pub(crate) has_waiter: bool,
    /// The worst outcome of the descriptors so far.
    pub(crate) outcome: Outcome,
    /// True for an operation with a result.
    pub(crate) answers: bool,
    pub(crate) result: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Open, with exactly one descriptor from [`Planner::begin_plain`] or
    /// [`Planner::push_plain`], and without a failure.
    Plain,
    /// Ended with `outcome`.
    Ended,
}

impl OpState {
    pub(super) const IDLE: Self = Self {
        descriptors: 0,
        deferred: 0,
        operations: 0,
        phase: Phase::Ended,
        has_waiter: false,
        outcome: Outcome::Done,
        answers: false,
        result: 0,
        bytes: 0,
    };

    pub(super) const PLAIN: Self = Self { descriptors: 1, operations: 1, phase: Phase::Plain, ..Self::IDLE };

    /// Returns true for an operation that has ended, and for an idle slot.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }
}

/// A log event. The event is logged later, without a borrow or a lock, because a log subscriber may panic or
/// use the queue.
#[derive(Debug)]
pub(crate) enum LogEvent {
    /// An event of the engine's queue.
    Engine(DeferredEvent),
    /// A descriptor was refused or has failed.
    Failed { slot: u32, outcome: Outcome, native: Option<NativeError> },
    /// The device was abandoned with this many descriptors in flight.
    Abandoned { descriptors: usize },
    /// The device is lost.
    Lost { error: String },
    /// The engine panicked.
    Panicked,
    /// The queue belongs to the parent of this forked process.
    Forked,
}

impl LogEvent {
    /// Logs the event with `tracing`, and catches a panic of the program's log subscriber. In a call of
    /// another queue, whose engine uses this queue, the event is deferred.
    pub(crate) fn emit(self, backend: &'static str) {
        log_event(move || match self {
            Self::Engine(event) => event.emit(),
            Self::Failed { slot, outcome, native } => {
                tracing::warn!(backend, slot, ?outcome, ?native, "operation failed");
            }
            Self::Abandoned { descriptors } => tracing::error!(
                backend,
                descriptors,
                "the device did not respond; its queue and the memory that it may write are leaked"
            ),
            Self::Lost { error } => {
                tracing::error!(backend, error, "a device is lost; its queue is abandoned")
            }
            Self::Panicked => tracing::error!(backend, "an engine panicked; its queue is abandoned"),
            Self::Forked => tracing::warn!(
                backend,
                "the queue belongs to the parent of this forked process; the copies in flight end here"
            ),
        });
    }
}

/// Returns the token of the descriptors of operation `index` in `slot`.
pub(super) const fn token(slot: u32, index: u32) -> u64 {
    (slot as u64) | (index as u64 * ONE_INDEX)
}

/// The difference between the tokens of consecutive indices.
pub(super) const ONE_INDEX: u64 = 1 << 32;

pub(super) const fn slot_of(token: u64) -> u32 {
    (token & 0xffff_ffff) as u32
}

pub(super) const fn index_of(token: u64) -> u32 {
    (token >> 32) as u32
}

/// Returns the range of keys in [`Outcomes::failures`] that belong to `slot`.
const fn of_slot(slot: u32) -> RangeInclusive<(u32, u32)> {
    (slot, 0)..=(slot, u32::MAX)
}

impl Outcomes {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            ops: vec![OpState::IDLE; slots].into(),
            failures: BTreeMap::new(),
            counters: Counters::default(),
            executed: 0,
            log_events: Vec::new(),
        }
    }

    /// Returns the number of accepted operations that have not ended.
    pub(super) fn open_operations(&self) -> u64 {
        let Counters { submitted, completed, failed, aborted, abandoned, .. } = self.counters;
        submitted - completed - failed - aborted - abandoned
    }

    /// Counts operations that were executed in the call that submitted them.
    #[inline]
    pub(super) fn count_executed(&mut self, operations: u64, bytes: usize) {
        self.executed += operations;
        self.count_bytes(bytes as u64);
    }

    /// Adds to the number of bytes. The sum saturates, because repeated windows may exceed the size of the
    /// address space.
    #[inline]
    fn count_bytes(&mut self, bytes: u64) {
        // This takes fewer instructions than `saturating_add`.
        let (sum, overflows) = self.counters.bytes.overflowing_add(bytes);
        self.counters.bytes = sum;
        if overflows {
            self.saturate();
        }
    }

    #[cold]
    #[inline(never)]
    fn saturate(&mut self) {
        self.counters.bytes = u64::MAX;
    }

    /// Returns the counts of operations. The counts of descriptors and polls are the device's.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.counters;
        counters.submitted += self.executed;
        counters.completed += self.executed;
        counters
    }

    /// Begins a plain operation with `len` bytes in `slot`, which must be idle.
    #[inline]
    pub(super) fn begin_plain(&mut self, slot: u32, len: usize, has_waiter: bool) {
        self.counters.submitted += 1;
        self.ops[slot as usize] = OpState { bytes: len as u64, has_waiter, ..OpState::PLAIN };
    }

    /// Ends a plain operation without a waiter, which is reported as done.
    #[inline]
    pub(super) fn complete_plain(&mut self, slot: u32) {
        let op = &mut self.ops[slot as usize];
        debug_assert!(op.phase == Phase::Plain && !op.has_waiter);
        (op.descriptors, op.phase) = (0, Phase::Ended);
        let bytes = op.bytes;
        self.counters.completed += 1;
        self.count_bytes(bytes);
    }

    /// Ends operations of one descriptor that are reported as done, up to the first report of another type.
    /// Returns the number of ended operations.
    #[inline]
    pub(super) fn complete_singles(&mut self, reports: &[Completion], ended: &mut Vec<u32>) -> usize {
        let Self { ops, counters, .. } = self;
        // Local variables stay in registers, whereas fields would be written at each step.
        let (mut at, mut bytes) = (0, counters.bytes);
        for Completion { token, outcome, .. } in reports {
            let slot = slot_of(*token);
            let Some(op) = ops.get_mut(slot as usize) else { break };
            if op.phase != Phase::Plain || *outcome != Outcome::Done {
                break;
            }
            (op.descriptors, op.phase) = (0, Phase::Ended);
            // The sum saturates, because repeated windows may exceed the size of the address space.
            bytes = bytes.saturating_add(op.bytes);
            at += 1;
            if op.has_waiter {
                ended.push(slot);
            }
        }
        counters.completed += at as u64;
        counters.bytes = bytes;
        at
    }

    /// If no part of the operation in `slot` is left, ends and counts the operation, and appends the slot to
    /// `ended` if the operation has a waiter. Returns whether the operation has ended now.
    #[inline]
    pub(super) fn end_if_over(&mut self, slot: u32, ended: &mut Vec<u32>) -> bool {
        let op = &mut self.ops[slot as usize];
        if op.descriptors > 0 || op.deferred > 0 || op.has_ended() {
            return false;
        }
        op.phase = Phase::Ended;
        let operations = u64::from(op.operations);
        if op.outcome == Outcome::Done {
            self.counters.completed += operations;
            // The sum saturates, because repeated windows may exceed the size of the address space.
            self.counters.bytes = self.counters.bytes.saturating_add(op.bytes);
        } else {
            let mut record_failed = 0;
            for failure in self.failures.range(of_slot(slot)).map(|(_, failure)| failure) {
                record_failed += 1;
                match failure.outcome {
                    Outcome::Aborted => self.counters.aborted += 1,
                    _ => self.counters.failed += 1,
                }
            }
            self.counters.completed += operations - record_failed;
        }
        if op.has_waiter {
            ended.push(slot);
        }
        true
    }

    /// Removes and returns the failures of an ended operation, sorted by index.
    pub(crate) fn take_failures(&mut self, slot: u32) -> Vec<Failure> {
        let mut failures = Vec::new();
        while let Some((&key, _)) = self.failures.range(of_slot(slot)).next() {
            failures.extend(self.failures.remove(&key));
        }
        failures
    }
}
