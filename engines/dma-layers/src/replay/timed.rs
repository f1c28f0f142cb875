//! [`run`]: runs a trace with its pauses, each queue on a thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use dma_core::{DmaEngine, Error, ErrorKind, Result};
use dma_process::with_signals_blocked;

use super::clock::NAP;
use super::memory::ReplayMemory;
use super::options::ReplayOptions;
use super::player::{Pace, Player};
use super::result::Replayed;
use crate::os_clock;
use crate::record::Trace;

/// State that the threads share.
struct SharedReplay<'a> {
    trace: &'a Trace,
    engine: &'a Arc<dyn DmaEngine>,
    options: &'a ReplayOptions,
    /// Queues that the program opened before this time are opened before the start, because all of them were
    /// open at once.
    first_closed: Duration,
    ready: Barrier,
    /// Set when a queue has failed. Then the other queues stop.
    stop: AtomicBool,
    epoch: OnceLock<Instant>,
}

/// The replay of one queue, and the CPU time of its thread.
type Part = Result<(Replayed, Duration)>;

/// Runs all queues.
pub(super) fn run(
    trace: &Trace,
    engine: &Arc<dyn DmaEngine>,
    memory: &[ReplayMemory],
    options: &ReplayOptions,
) -> Result<Replayed> {
    let queues = trace.queues();
    let shared = SharedReplay {
        trace,
        engine,
        options,
        first_closed: queues.iter().map(|queue| queue.closed).min().unwrap_or_default(),
        ready: Barrier::new(queues.len() + 1),
        stop: AtomicBool::new(false),
        epoch: OnceLock::new(),
    };
    let (parts, process) = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, memory) in memory.iter().enumerate() {
            let shared = &shared;
            threads.push(with_signals_blocked(|| scope.spawn(move || shared.queue(number, memory))));
        }
        // Now all queues that are opened before the start are open.
        shared.ready.wait();
        let before = os_clock::process_cpu();
        shared.epoch.get_or_init(Instant::now);
        shared.ready.wait();
        let parts: Vec<Part> = threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect();
        (parts, os_clock::process_cpu().saturating_sub(before))
    });
    let mut replayed = Replayed::default();
    let mut threads = Duration::ZERO;
    for part in parts {
        let (ran, thread) = part?;
        replayed.time = replayed.time.max(ran.time);
        replayed.cpu += ran.cpu;
        replayed.wait += ran.wait;
        replayed.doorbells += ran.doorbells;
        replayed.descriptors += ran.descriptors;
        replayed.failed += ran.failed;
        threads += thread;
    }
    // The rest of the process's CPU time is that of the engine's threads. A model's threads represent the
    // device and do not count.
    if engine.info().model.is_none() {
        replayed.cpu += process.saturating_sub(threads);
    }
    Ok(replayed)
}

fn died(_: Box<dyn std::any::Any + Send>) -> Part {
    Err(Error::new(ErrorKind::InvalidArgument, "a queue's thread panicked"))
}

impl SharedReplay<'_> {
    fn queue(&self, number: usize, memory: &ReplayMemory) -> Part {
        let Self { trace, engine, options, .. } = self;
        let open = || Player::open(trace, number, engine, memory, options, Pace::Recorded);
        let opened = trace.queues()[number].opened;
        let ahead = (opened <= self.first_closed).then(open);
        self.ready.wait();
        self.ready.wait();
        let epoch = *self.epoch.get_or_init(Instant::now);
        let cpu = os_clock::thread_cpu();
        let play = || {
            while let Some(left) = opened.checked_sub(epoch.elapsed())
                && !self.stop.load(Ordering::Relaxed)
            {
                std::thread::sleep(left.min(NAP));
            }
            let mut player = ahead.unwrap_or_else(open)?;
            let mut ran = player.play(&self.stop)?;
            ran.time = epoch.elapsed();
            Ok((ran, os_clock::thread_cpu().saturating_sub(cpu)))
        };
        play().inspect_err(|_| self.stop.store(true, Ordering::Relaxed))
    }
}
