//! [`RecordEngine`]: writes a trace of another engine's operations, and [`Trace`], which reads it.
//!
//! - A trace contains each descriptor (operation, length, region and offset, fence), doorbells, cache hints,
//!   the [places](dma_core::Place) of regions, and the times of calls and reports. A trace contains no bytes
//!   of memory and no addresses.
//! - A descriptor takes about 5 bytes in batches of 32, 12 bytes alone, and less in batches of adjacent
//!   copies.
//! - Each queue has a buffer. The buffer is written to the file when it is full, when the queue is closed,
//!   and by the first submission more than a second after the last write. Copies do not allocate once the
//!   queues and regions are known. A copy that finds the buffer full blocks until the buffer is written.
//! - The file gets its name when the engine and all its queues are closed. Until then its name is
//!   `NAME.partial`. The file keeps this name if the program ends earlier, by a signal or by `exit`. A
//!   partial trace can be read up to its last complete block.
//! - Symbolic links are followed, and the file may be a device or a pipe: see
//!   [`OutputFile`](dma_process::OutputFile).
//! - An error of the file ends the trace, but does not fail a copy: the error is logged, the next queue is
//!   refused, and [`RecordEngine::finish`] returns the error.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dma_core::{DmaEngineExt, QueueOptions};
//! use dma_layers::record::{RecordEngine, RecordOptions, Trace};
//! use dma_sim::sim::{SimEngine, SimOptions};
//!
//! let folder = tempfile::tempdir().expect("a folder");
//! let file = folder.path().join("copies.trace");
//! let device = SimEngine::open(&SimOptions::from_name(&"sim:seed=1".parse()?)?)?;
//! let engine = RecordEngine::new(Arc::new(device), &RecordOptions::new(&file))?;
//! let queue = engine.open_queue(&QueueOptions::new())?;
//! queue.copy(engine.allocate(4096)?, engine.allocate(4096)?)?.wait()?;
//! drop(queue);
//! engine.finish()?;
//! let trace = Trace::load(&file)?;
//! assert_eq!((trace.queues()[0].operations, trace.queues()[0].bytes), (1, 4096));
//! # Ok::<(), dma_core::Error>(())
//! ```
#![expect(unsafe_code, reason = "implements the contract")]

mod content;
mod error;
mod events;
mod format;
mod queue;
mod regions;
mod sink;
mod state;
mod summary;
mod trace;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dma_core::{
    Capabilities, DmaEngine, EngineName, Error, ErrorKind, NameFormat, OptionInfo, Place, QueueOptions,
    RegionInfo, Result,
};
use dma_process::ForkMark;

pub use content::{Kind, QueueTrace, Recorded, Span, TraceEvent};
pub use error::TraceError;
pub use events::Events;
use queue::RecordQueue;
use regions::Regions;
use sink::Sink;
use state::{Record, RecordState};
pub use trace::Trace;

use crate::os_clock;
use crate::wrapper::{Layered, Wrapper};

/// Minimum and default size of a queue's buffer in bytes.
const BUFFER: (u64, u64) = (4096, 1 << 20);

/// The options of a [`RecordEngine`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordOptions {
    /// The path of the trace. The folder must exist. An existing file is replaced when the trace is complete.
    pub file: PathBuf,
    /// Size of each queue's buffer in bytes, at least 4 KiB. Default: 1 MiB.
    pub buffer: u64,
    /// The name of the recorded engine in the trace. Default: empty, which means the name of its backend.
    pub engine: String,
}

impl RecordOptions {
    /// The options in engine names.
    pub const INFO: &'static [OptionInfo] = &[
        OptionInfo::new("file", "PATH", "none", "the trace to write").needing_trust(),
        OptionInfo::new("buffer", "BYTES", "1M", "buffer of each queue, at least 4K"),
    ];
    /// The format of engine names.
    pub const NAME_FORMAT: NameFormat = NameFormat::new("record", Self::INFO);

    /// Makes the options for a trace in `file`.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), buffer: BUFFER.1, engine: String::new() }
    }

    dma_core::setters! {
        with_buffer(buffer: u64);
        with_engine(engine: impl Into<String>);
    }

    /// Reads the wrapper's part of an engine name: see [`INFO`](Self::INFO).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` or `OutOfRange` for an invalid option or value, or if `file` is missing.
    pub fn from_name(name: &EngineName) -> Result<Self> {
        let mut read = Self::new("");
        name.read_options(Self::NAME_FORMAT, |key, value| {
            match key {
                "file" => read.file = value.path()?,
                "buffer" => read.buffer = value.size(BUFFER.0..=1 << 30)?,
                _ => return Err(value.not_read()),
            }
            Ok(())
        })?;
        if read.file.as_os_str().is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "option file is missing")
                .with_hint("name the trace, such as record+cpu:file=copies.trace"));
        }
        Ok(read)
    }
}

/// An engine whose operations are recorded: see the [module](self).
///
/// In a forked child, dropping the engine leaves the trace to the parent.
#[derive(Debug)]
pub struct RecordEngine {
    layered: Layered<Record>,
}

impl RecordEngine {
    /// Makes an engine that records `inner`.
    ///
    /// # Errors
    ///
    /// `NotFound`, `PermissionDenied` or `Os` if the file cannot be created; `OutOfRange` if the buffer is
    /// too small.
    pub fn new(inner: Arc<dyn DmaEngine>, options: &RecordOptions) -> Result<Self> {
        let buffer = usize::try_from(options.buffer).ok().filter(|_| options.buffer >= BUFFER.0);
        let Some(buffer) = buffer else {
            return Err(Error::new(ErrorKind::OutOfRange, "the buffer of a trace")
                .with_numbers(options.buffer, BUFFER.0)
                .with_hint("give at least 4 KiB"));
        };
        let mut info = inner.info().clone();
        info.device.push_str(", recorded");
        let name = if options.engine.is_empty() { info.backend } else { &options.engine };
        let state =
            RecordState { sink: Some(Sink::create(&options.file)?), engine: true, ..RecordState::default() };
        let record = Record {
            name: name.to_owned(),
            cpu_copies: info.capabilities.contains(Capabilities::CPU_COPIES),
            buffer,
            regions: Regions::default(),
            state: Mutex::new(state),
            process: ForkMark::new(),
        };
        Ok(Self { layered: Layered::new(inner, info, record) })
    }

    /// Completes the trace and gives the file its final name. Dropping the engine and its queues also
    /// completes the trace, but can only log errors. Queues cannot be opened after this call.
    ///
    /// # Errors
    ///
    /// `InUse` while queues are open; `Closed` if the trace was already finished; `Unsupported` in a forked
    /// child; errors of the file.
    pub fn finish(&self) -> Result<()> {
        let record = &self.layered.wrapper;
        if record.process.is_child() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the trace belongs to the parent of this forked process",
            )
            .with_hint("finish it in the process that opened the engine"));
        }
        dma_core::with_deferred_log(|| {
            let mut state = record.state();
            if state.open > 0 {
                return Err(Error::new(ErrorKind::InUse, "queues of the recorded engine are open")
                    .with_hint("drop them first"));
            }
            record.finish(&mut state)
        })
    }
}

impl Drop for RecordEngine {
    fn drop(&mut self) {
        let record = &self.layered.wrapper;
        if record.process.is_child() {
            // Leak the file: the parent goes on writing it.
            std::mem::forget(Arc::clone(record));
            return;
        }
        dma_core::with_deferred_log(|| {
            let mut state = record.state();
            state.engine = false;
            record.finish_if_unused(&mut state);
        });
    }
}

// SAFETY: the result is always the engine in the field `layered`, which is never replaced.
unsafe impl dma_core::ForwardEngine for RecordEngine {
    type Inner = dyn DmaEngine;
    fn forward_to(&self) -> &Self::Inner {
        &self.layered
    }
}
dma_core::forward_engine!([] RecordEngine);

impl Wrapper for Record {
    type Queue = RecordQueue;

    fn open(this: &Arc<Self>, options: &QueueOptions, depth: usize) -> Result<RecordQueue> {
        let mut state = this.state();
        if state.sink.is_none() {
            return Err(state.error.take().unwrap_or_else(sink::given_up));
        }
        let (began, _) = *state.began.get_or_insert_with(|| (Instant::now(), os_clock::process_cpu()));
        state.open += 1;
        let trace =
            QueueTrace { depth, hint: options.hint, opened: began.elapsed(), ..QueueTrace::default() };
        state.queues.push(trace);
        let number = state.queues.len() as u32 - 1;
        drop(state);
        Ok(RecordQueue::new(number, trace, Arc::clone(this)))
    }

    fn explain(&self) -> String {
        if self.process.is_child() {
            return String::new();
        }
        let state = self.state();
        match (&state.lost, &state.sink) {
            (Some(reason), _) => format!("trace lost: {reason}\n"),
            (None, Some(_)) => format!("trace: {} queues so far, {} open\n", state.queues.len(), state.open),
            (None, None) => "trace: finished\n".to_owned(),
        }
    }

    fn region_opened(&self, region: &RegionInfo, place: Place) {
        self.regions.add(region, place);
    }

    fn region_closing(&self, region: &RegionInfo) {
        self.regions.remove(region);
    }
}
