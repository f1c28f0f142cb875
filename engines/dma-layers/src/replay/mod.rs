//! [`replay`] runs a recorded [`Trace`] on an engine, to measure how that engine would change the program.
//!
//! - Each queue of the trace is replayed by a thread with its own queue. The thread makes the recorded calls
//!   in their order, with the same operations, lengths and batches. Between the calls it waits for as long as
//!   the program worked.
//! - At each report in the trace, the replay waits for the same descriptors. So the replay never has more
//!   descriptors in flight than the program had, and reuses memory only after the report after which the
//!   program reused it.
//! - Each queue has its own memory: the part of each region that the queue's operations name, in the recorded
//!   place. Device memory has a copy in host memory, which is used to check its bytes.
//! - Operations that exceed the engine's limits are split, and the depth of queues does not exceed the
//!   engine's limit. If the engine has no fences, the replay waits for all earlier operations instead.
//! - Before the timed runs, the trace runs once without pauses, and all bytes and results are checked.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dma_core::{DmaEngine, DmaEngineExt, QueueOptions};
//! use dma_cpu::{CpuEngine, CpuOptions};
//! use dma_layers::record::{RecordEngine, RecordOptions, Trace};
//! use dma_layers::replay::{ReplayOptions, replay};
//! use dma_sim::sim::{SimEngine, SimOptions};
//!
//! let folder = tempfile::tempdir().expect("a folder");
//! let file = folder.path().join("copies.trace");
//! let cpu = Arc::new(CpuEngine::open(&CpuOptions::from_name(&"cpu".parse()?)?)?);
//! let engine = RecordEngine::new(cpu, &RecordOptions::new(&file))?;
//! let queue = engine.open_queue(&QueueOptions::new())?;
//! queue.copy(engine.allocate(4096)?, engine.allocate(4096)?)?.wait()?;
//! drop(queue);
//! engine.finish()?;
//! let device: Arc<dyn DmaEngine> = Arc::new(SimEngine::open(&SimOptions::from_name(&"sim".parse()?)?)?);
//! let replayed = replay(&Trace::load(&file)?, &device, &ReplayOptions::new())?;
//! assert_eq!((replayed.descriptors, replayed.doorbells, replayed.mismatch), (1, 1, None));
//! # Ok::<(), dma_core::Error>(())
//! ```
#![expect(unsafe_code, reason = "submits descriptors, and reads the memory that they name")]

mod clock;
mod memory;
mod options;
mod player;
mod requirements;
mod result;
mod split;
mod timed;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dma_core::{DmaEngine, Result};

use crate::record::{Trace, TraceEvent};
use memory::{Content, ReplayMemory};
pub use options::ReplayOptions;
use player::{Pace, Player};
use requirements::Requirements;
pub use result::{Mismatch, Replayed};

/// Times of a trace, summed over all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyTimes {
    /// Time within calls that submit or ring, plus the time of waits if the CPU moves the bytes. This is the
    /// CPU time that copies take from the program's threads: a thread that waits for a device is free.
    pub cpu: Duration,
    /// Time from the first poll to the report.
    pub wait: Duration,
}

impl CopyTimes {
    /// Adds up the times of a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut times = Self::default();
        for event in (0..trace.queues().len()).flat_map(|queue| trace.events(queue)) {
            match event {
                TraceEvent::Submit { call, .. } | TraceEvent::Flush { call, .. } => times.cpu += call,
                TraceEvent::Ended { wait, .. } => times.wait += wait,
                TraceEvent::Operation { .. } | TraceEvent::Poll { .. } => {}
            }
        }
        if trace.recorded().cpu_copies {
            times.cpu += times.wait;
        }
        times
    }
}

/// Runs a trace on an engine: once to compare all bytes, then [`ReplayOptions::repetitions`] times with the
/// program's pauses. Blocks until all runs have ended.
///
/// # Errors
///
/// `InvalidArgument` for a trace without operations; `Malformed` for a trace with an operation that writes
/// bytes that it reads; `Unsupported` if the engine lacks an operation or a place of memory, or has no memory
/// that the CPU reaches; `OutOfMemory` if the trace needs more memory than [`ReplayOptions::memory`] allows
/// or the system has; `OutOfRange` for more than 1024 queues; `TimedOut` if the engine hangs; errors of the
/// engine, such as `OutOfResources` for too many queues.
pub fn replay(trace: &Trace, engine: &Arc<dyn DmaEngine>, options: &ReplayOptions) -> Result<Replayed> {
    let requirements = Requirements::of(trace)?;
    requirements.check(engine.info())?;
    let memory = ReplayMemory::allocate(engine, &requirements, &trace.recorded().places, options.memory)?;
    let mut replayed = Replayed::default();
    for (queue, memory) in memory.iter().enumerate() {
        memory.fill(engine, Content::Distinct)?;
        let mut player = Player::open(trace, queue, engine, memory, options, Pace::Verify)?;
        let Replayed { verified, mismatch, .. } = player.play(&AtomicBool::new(false))?;
        replayed.verified += verified;
        if mismatch.is_some() {
            return Ok(Replayed { mismatch, ..replayed });
        }
    }
    if requirements.compares {
        // This makes the compared data equal, so that comparisons read all of it, as in most programs.
        memory.iter().try_for_each(|memory| memory.fill(engine, Content::Zero))?;
    }
    let mut runs = Vec::new();
    for _ in 0..options.repetitions.max(1) {
        runs.push(timed::run(trace, engine, &memory, options)?);
    }
    runs.sort_by_key(|run| run.time);
    let median = runs.swap_remove((runs.len() - 1) / 2);
    Ok(Replayed { verified: replayed.verified, ..median })
}
