//! [`Hub`]: the lanes and their threads, which all clones of a queue share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::SharedQueueOptions;
use super::deferred_callbacks::DeferredCallback;
use super::lane::{self, Lane};
use super::wait_queue::WaitQueue;
use crate::planner::Planner;
use crate::planner::inline::Executed;
use crate::planner::wait::deadline;
use crate::{BufferMut, Counters, EngineInfo, Error, RawQueue, Result};
use dma_process::{ForkMark, lock};

/// One clone of the queue, shared with the transfers of this clone. Each clone has its own reference count,
/// so that threads with different clones do not contend.
pub(super) struct QueueHandle {
    pub(super) hub: Arc<Hub>,
    /// The submitter id of this clone. The id selects the lane, the free list word and the inbox that the
    /// clone uses first.
    pub(super) submitter_id: usize,
    /// The lane that this clone uses first.
    pub(super) first_lane: u16,
}

impl QueueHandle {
    #[inline]
    pub(super) fn lane(&self, at: u16) -> &Lane {
        &self.hub.lanes[usize::from(at)]
    }
}

pub(super) struct Hub {
    pub(super) lanes: Box<[Arc<Lane>]>,
    /// Tasks that wait for room.
    pub(super) wait_queue: Arc<WaitQueue>,
    /// Number of clones made so far.
    pub(super) clones: AtomicUsize,
    /// Counters of inline operations. There are several, so that threads with different clones rarely
    /// contend.
    pub(super) inline: [CachePadded<InlineCounts>; Self::INLINE_COUNTS],
    /// The lanes' threads, in the order of the lanes. Only threads that join them take the lock, and lanes'
    /// threads never do.
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process that started the threads. The threads do not exist in a forked child.
    pub(super) process: ForkMark,
    pub(super) drop_timeout: Duration,
}

/// Counters of operations that were executed in the calls that submitted them.
#[derive(Debug, Default)]
pub(super) struct InlineCounts {
    operations: AtomicU64,
    bytes: AtomicU64,
}

impl Hub {
    const INLINE_COUNTS: usize = 16;

    /// Makes the lanes and starts their threads.
    pub(super) fn new(
        lanes: Vec<(Box<dyn RawQueue>, Option<BufferMut>)>,
        info: &EngineInfo,
        options: &SharedQueueOptions,
    ) -> Result<Self> {
        let fail = |e: Error| e.with_operation("open shared queue").with_backend(info.backend);
        let wait_queue = Arc::new(WaitQueue::new());
        let lanes: Box<[_]> = lanes
            .into_iter()
            .map(|(raw, fill_block)| {
                let depth = raw.depth();
                let planner = Planner::new(raw, info, depth, fill_block);
                Arc::new(Lane::new(planner, &options.queue, Arc::clone(&wait_queue)))
            })
            .collect();
        let hub = Self {
            lanes,
            wait_queue,
            clones: AtomicUsize::new(0),
            inline: Default::default(),
            threads: Mutex::default(),
            process: ForkMark::new(),
            drop_timeout: options.queue.drop_timeout,
        };
        // If a thread cannot be started, dropping the hub stops the threads that were started.
        for (i, lane) in hub.lanes.iter().enumerate() {
            let (lane, cores) = (Arc::clone(lane), options.cores.clone());
            let (begun, begins) = std::sync::mpsc::sync_channel(1);
            let body = move || {
                _ = begun.send(crate::memory::numa::run_on(&cores));
                lane.serve();
            };
            let thread =
                dma_process::spawn_thread(format!("dma-lane-{i}"), body).map_err(|e| fail(e.into()))?;
            lock(&hub.threads).push(thread);
            if !options.cores.is_empty() {
                begins.recv().unwrap_or(Ok(())).map_err(fail)?;
            }
        }
        Ok(hub)
    }

    /// Counts an operation that was executed in the call of this clone.
    #[inline]
    pub(super) fn count_inline(&self, submitter_id: usize, executed: &Executed) {
        let counts = &self.inline[submitter_id % Self::INLINE_COUNTS];
        counts.operations.fetch_add(executed.operations, Ordering::Relaxed);
        counts.bytes.fetch_add(executed.bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn close(&self, timeout: Duration) -> Counters {
        if self.process.is_child() {
            // The lanes are the parent's, and a thread that does not exist here may hold their locks.
            return Counters::default();
        }
        let deadline = deadline(timeout);
        // Close all lanes before waiting for the first.
        self.lanes.iter().for_each(|lane| _ = lane.close(deadline));
        self.wait_queue.all().into_iter().map(DeferredCallback::Wake).for_each(DeferredCallback::run);
        if lane::on_lane() {
            // A waker or a destructor of operands called this on a lane thread, which must not join itself.
            // The lanes' threads have no work and exit.
            self.lanes.iter().for_each(|lane| lane.drain(lane.close(deadline)));
        } else {
            self.join(deadline);
        }
        self.counters()
    }

    /// Joins the lanes' threads, which drain their lanes before they exit.
    fn join(&self, deadline: Instant) {
        let mut orphans = Vec::new();
        // Hold the lock during the joins, so that a second thread that closes the queue waits for the first.
        let mut threads = lock(&self.threads);
        for (lane, thread) in self.lanes.iter().zip(threads.drain(..)) {
            if thread.join().is_err() {
                orphans.push(lane);
            }
        }
        drop(threads);
        for lane in orphans {
            crate::guarded_log!(error, "a lane's thread panicked; this thread drains the lane");
            lane.drain(lane.close(deadline));
        }
    }

    pub(super) fn wake_next(&self) {
        if let Some(waker) = (!self.process.is_child()).then(|| self.wait_queue.next()).flatten() {
            DeferredCallback::Wake(waker).run();
        }
    }

    /// If every lane that accepts operations has stalled, returns the shortest stall.
    #[cold]
    pub(super) fn hangs(&self) -> Option<Duration> {
        self.lanes.iter().filter(|lane| !lane.refuses()).map(|lane| lane.stalled()).min().flatten()
    }

    pub(super) fn counters(&self) -> Counters {
        if self.process.is_child() {
            return Counters::default();
        }
        let mut counters = self.lanes.iter().fold(Counters::default(), |sum, lane| sum.plus(lane.counters()));
        for counts in &self.inline {
            let operations = counts.operations.load(Ordering::Relaxed);
            counters.submitted += operations;
            counters.completed += operations;
            counters.bytes = counters.bytes.saturating_add(counts.bytes.load(Ordering::Relaxed));
        }
        counters
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.process.is_child() {
            // A forked child does not have the threads, and may not join them.
            std::mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner))
                .into_iter()
                .for_each(std::mem::forget);
        } else {
            self.close(self.drop_timeout);
        }
    }
}
