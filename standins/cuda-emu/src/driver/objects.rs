//! The driver's objects: contexts, events, and streams with their steps.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::time::Instant;

use dma_sim::model::{ChannelId, Time};

use super::kernel_run::KernelRun;
use super::pieces::Moves;
use crate::codes::Code;
use crate::host_call::{HostCall, StreamValue, Until};
use crate::shared_event::SharedEvent;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(super) primary: bool,
    /// The failure that ended the context. Every later call returns it.
    pub(super) dead: Option<Code>,
    pub(super) legacy: Option<u64>,
    pub(super) peers: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct PrimaryContext {
    pub(super) context: Option<u64>,
    pub(super) retained: u32,
    pub(super) flags: u32,
}

/// Number of requested records of an event (`wanted`), and number of the last record that was executed
/// (`recorded`).
#[derive(Debug)]
pub(super) enum Records {
    Own {
        wanted: u64,
        recorded: u64,
    },
    /// Other processes record the event, too, or wait for it.
    Shared(SharedEvent),
}

impl Records {
    pub(super) fn wanted(&self) -> u64 {
        match self {
            Self::Own { wanted, .. } => *wanted,
            Self::Shared(shared) => shared.wanted(),
        }
    }

    pub(super) fn recorded(&self) -> u64 {
        match self {
            Self::Own { recorded, .. } => *recorded,
            Self::Shared(shared) => shared.recorded(),
        }
    }

    pub(super) fn are_over(&self) -> bool {
        self.recorded() >= self.wanted()
    }

    /// Requests a record, and returns its number.
    pub(super) fn request(&mut self) -> u64 {
        match self {
            Self::Own { wanted, .. } => {
                *wanted += 1;
                *wanted
            }
            Self::Shared(shared) => shared.request(),
        }
    }

    /// Executes the record with this number.
    pub(super) fn record(&mut self, number: u64) {
        match self {
            Self::Own { recorded, .. } => *recorded = number,
            Self::Shared(shared) => shared.record(number),
        }
    }

    pub(super) const fn are_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }
}

#[derive(Debug)]
pub(super) struct StreamEvent {
    pub(super) context: u64,
    pub(super) flags: u32,
    pub(super) records: Records,
    pub(super) at: Instant,
    pub(super) destroyed: bool,
}

/// One step of a stream.
#[derive(Debug)]
pub(super) enum Step {
    /// Pieces to move in any order.
    Move(Moves),
    /// Words of 4 bytes, `pitch` apart.
    Strided {
        bytes: u64,
        pitch: u64,
        word: u32,
        rows: u64,
    },
    /// A kernel.
    Launch(Box<KernelRun>),
    Record {
        event: u64,
        number: u64,
    },
    Wait {
        event: u64,
        number: u64,
    },
    /// Waits until another stream has executed this number of steps.
    Behind {
        stream: u64,
        steps: u64,
    },
    /// Frees memory, unless the stream has allocated it again since.
    Free {
        addr: u64,
        id: u64,
    },
    WriteValue(StreamValue),
    WaitValue {
        value: StreamValue,
        until: Until,
    },
    Call(HostCall),
    /// A host function that the thread is calling now.
    Calling,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) priority: c_int,
    pub(super) channel: ChannelId,
    pub(super) steps: VecDeque<Step>,
    /// Number of steps so far (`queued`), and of those that have ended (`done`).
    pub(super) queued: u64,
    pub(super) done: u64,
    pub(super) copies: u64,
    /// Time by which kernels were slower than the profile says. Events do not count it.
    pub(super) lag: Time,
    pub(super) destroyed: bool,
}
