//! [`Record`]: the state that the engine's queues and regions share.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dma_core::{Error, Result};
use dma_process::{ForkMark, lock};

use super::content::{QueueTrace, Recorded};
use super::format::{CHECKPOINT, END};
use super::regions::Regions;
use super::sink::{self, Sink};
use super::summary;
use crate::os_clock;

/// The state that the engine's queues and regions share.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) cpu_copies: bool,
    pub(super) buffer: usize,
    pub(super) regions: Regions,
    pub(super) state: Mutex<RecordState>,
    /// The process that writes the trace. A forked child must not write to the file, or take a lock.
    pub(super) process: ForkMark,
}

#[derive(Debug, Default)]
pub(super) struct RecordState {
    /// `None` once the trace is finished, or has ended because of `error`.
    pub(super) sink: Option<Sink>,
    pub(super) error: Option<Error>,
    /// The text of this error, for later callers: the first caller got the error itself.
    pub(super) lost: Option<String>,
    /// True while the engine exists (`engine`), and the number of its open queues (`open`).
    pub(super) engine: bool,
    pub(super) open: usize,
    pub(super) queues: Vec<QueueTrace>,
    /// The number of queues, and the value of [`Regions::growths`], at the last checkpoint.
    pub(super) described: (usize, u64),
    /// The time at which the first queue was opened, and the CPU time until then.
    pub(super) began: Option<(Instant, Duration)>,
    /// Time and CPU time from the opening of the first queue until the closing of the last one.
    pub(super) time: Duration,
    pub(super) cpu: Duration,
}

impl Record {
    pub(super) fn state(&self) -> MutexGuard<'_, RecordState> {
        lock(&self.state)
    }

    /// Writes a queue's events. Writes a checkpoint before them if they may name a queue or a region that the
    /// last checkpoint does not contain.
    pub(super) fn write(&self, queue: u32, bytes: &[u8]) {
        let mut state = self.state();
        let now = (state.queues.len(), self.regions.growths());
        let described = std::mem::replace(&mut state.described, now);
        let RecordState { sink: Some(sink), queues, .. } = &mut *state else { return };
        let mut written = Ok(());
        if described != now {
            let recorded = self.recorded(Duration::ZERO, Duration::ZERO);
            written = sink.block(CHECKPOINT, &summary::encode_summary(&recorded, queues));
        }
        if let Err(error) = written.and_then(|()| sink.block(queue, bytes)) {
            state.give_up(error);
        }
    }

    pub(super) fn recorded(&self, time: Duration, cpu: Duration) -> Recorded {
        let (regions, places) = self.regions.lengths_and_places();
        let (engine, cpu_copies) = (self.name.clone(), self.cpu_copies);
        Recorded { engine, time, cpu, partial: false, cpu_copies, regions, places }
    }

    pub(super) fn close_queue(&self, number: u32, mut trace: QueueTrace) {
        let mut state = self.state();
        if let Some((began, cpu)) = state.began {
            (state.time, state.cpu) = (began.elapsed(), os_clock::process_cpu().saturating_sub(cpu));
        }
        trace.closed = state.time;
        state.queues[number as usize] = trace;
        state.open -= 1;
        self.finish_if_unused(&mut state);
    }

    pub(super) fn finish_if_unused(&self, state: &mut RecordState) {
        if !state.engine && state.open == 0 && state.sink.is_some() {
            // `finish` has logged the error.
            let _ = self.finish(state);
        }
    }

    pub(super) fn finish(&self, state: &mut RecordState) -> Result<()> {
        let Some(mut sink) = state.sink.take() else {
            return Err(state.error.take().unwrap_or_else(sink::given_up));
        };
        let summary = summary::encode_summary(&self.recorded(state.time, state.cpu), &state.queues);
        let finished = match sink.block(END, &summary) {
            Ok(()) => sink.finish(),
            Err(error) => Err(sink.give_up(error)),
        };
        finished.inspect_err(|error| {
            let why = error.to_string();
            state.lost = Some(why.clone());
            dma_core::deferred_log!(error, error = why, "the trace is lost");
        })
    }
}

impl RecordState {
    pub(super) fn give_up(&mut self, error: io::Error) {
        let Some(sink) = self.sink.take() else { return };
        let error = sink.give_up(error);
        let why = error.to_string();
        self.lost = Some(why.clone());
        self.error = Some(error);
        dma_core::deferred_log!(error, error = why, "the trace is given up");
    }
}
