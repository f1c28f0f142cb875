//! A work queue: it accepts descriptors from portals and `write()`, and has a thread that runs them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dma_sim::model::{Fault, FaultInjector, Faults};
use dma_standin::{ForkMark, with_signals_blocked};
use rustix::io::Errno;

use crate::config::{Mode, QueueConfig};
use crate::decode::Store;
use crate::descriptor::{Descriptor, SIZE, flag, op};
use crate::operations::{End, Engine};
use crate::ring::Ring;
use crate::tree::{self, Tree};

const ENABLED: u8 = 0;
/// State: the work queue accepts no descriptors, and runs none.
const DISABLED: u8 = 1;
/// State: the work queue accepts descriptors, but runs none.
const HUNG: u8 = 2;

/// A work queue.
#[derive(Debug)]
pub struct Queue {
    /// The configuration of this work queue.
    pub config: QueueConfig,
    /// The path of the file that represents the device, without symbolic links.
    pub(crate) file: PathBuf,
    /// The folder with the description of the work queue.
    dir: PathBuf,
    ring: Ring,
    injector: FaultInjector,
    engine: Mutex<Engine>,
    state: AtomicU8,
    closed: AtomicBool,
    /// Id of the process whose thread runs the descriptors; 0 if no thread was started.
    worker_of: OnceLock<ForkMark>,
    submissions: AtomicU64,
    /// Number of descriptors that the worker has run or dropped.
    handled: AtomicUsize,
    lost: AtomicU64,
}

impl Queue {
    pub(crate) fn new(config: QueueConfig, tree: &Tree) -> Self {
        Self {
            file: tree.dev().join(&config.name),
            dir: tree.sysfs().join(&config.name),
            ring: Ring::new(config.size as usize),
            injector: FaultInjector::new(config.faults.clone(), config.seed),
            engine: Mutex::new(Engine::new(0)),
            state: AtomicU8::new(ENABLED),
            closed: AtomicBool::new(false),
            worker_of: OnceLock::new(),
            submissions: AtomicU64::new(0),
            handled: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            config,
        }
    }

    /// Accepts a descriptor from a portal. Returns true if the work queue refuses it; only ENQCMD reports
    /// this to the program. A `stale` portal was mapped before the work queue was disabled.
    /// Async-signal-safe.
    pub(crate) fn store(&self, store: Store, descriptor: &Descriptor, stale: bool) -> bool {
        let shared = self.config.mode == Mode::Shared;
        let taken = !stale && (store == Store::Enqcmd) == shared && self.take(descriptor);
        if !taken && store == Store::Movdir64b {
            // The device also drops such a descriptor.
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.ring.wake();
        }
        !taken
    }

    fn take(&self, descriptor: &Descriptor) -> bool {
        if self.state.load(Ordering::Acquire) == DISABLED {
            return false;
        }
        let number = self.submissions.fetch_add(1, Ordering::Relaxed) + 1;
        if self.config.mode == Mode::Shared && self.injector.strike(0, number).has(Fault::Refuse) {
            return false;
        }
        if self.worker_of.get().is_some_and(|process| !process.is_child()) {
            return self.ring.push(descriptor);
        }
        // A forked child has no worker, so it runs the descriptor here. The child takes no lock, because a
        // thread of the parent may have held the lock during the fork.
        Engine::new(number).run(&self.config, &self.injector, descriptor);
        true
    }

    /// Accepts descriptors as `write()` to the work queue's file does, and returns the number of accepted
    /// bytes. With `at_once`, short descriptors may run on this thread.
    ///
    /// # Errors
    ///
    /// The first descriptor is not accepted, for the reasons of `Emu::write`.
    pub fn write(&self, bytes: &[u8], at_once: bool) -> Result<usize, Errno> {
        let mut written = 0;
        for bytes in bytes.as_chunks::<SIZE>().0 {
            let descriptor = Descriptor::from_bytes(bytes);
            let error = if self.state.load(Ordering::Acquire) == DISABLED {
                Some(Errno::NODEV)
            } else if descriptor.opcode() == op::BATCH && !self.config.mmap
                || descriptor.has(flag::RECORD_VALID) && !descriptor.record().is_multiple_of(32)
            {
                Some(Errno::INVAL)
            } else if at_once && self.run_at_once(&descriptor) || self.take(&descriptor) {
                None
            } else {
                Some(Errno::AGAIN)
            };
            match error {
                Some(errno) if written == 0 => return Err(errno),
                Some(_) => break,
                None => written += SIZE,
            }
        }
        Ok(written)
    }

    /// Runs a short descriptor on this thread, if no descriptor waits and no fault is configured. The
    /// hardware ends short descriptors soon after the kernel's `write()` returns, and programs rely on it:
    /// DTO pauses 10,000 times and then stops using the device. The worker may need longer to wake up.
    fn run_at_once(&self, descriptor: &Descriptor) -> bool {
        const LONGEST: u32 = 4096;
        let is_short = match descriptor.opcode() {
            op::NOP | op::DRAIN => true,
            op::BATCH => false,
            _ => descriptor.len() <= LONGEST,
        };
        if !is_short || self.config.unordered || !self.config.faults.rules.is_empty() {
            return false;
        }
        // `try_lock`, because in a forked child the lock may be held for a thread that does not exist there.
        let Ok(mut engine) = self.engine.try_lock() else { return false };
        let is_idle = self.handled.load(Ordering::Acquire) == self.ring.pushed();
        if !is_idle || self.state.load(Ordering::Acquire) != ENABLED {
            return false;
        }
        self.submissions.fetch_add(1, Ordering::Relaxed);
        self.run(&mut engine, descriptor);
        true
    }

    /// Starts the thread that runs the descriptors. The thread never ends before [`close`](Self::close).
    pub(crate) fn start(&'static self) -> std::io::Result<std::thread::JoinHandle<()>> {
        self.worker_of.get_or_init(ForkMark::new);
        with_signals_blocked(|| {
            std::thread::Builder::new().name(format!("dsa-emu {}", self.config.name)).spawn(|| self.work())
        })
    }

    fn work(&self) {
        crate::signals::block_signals();
        let over = || {
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.say(&format!(
                    "{lost} stores of MOVDIR64B are lost: the work queue is full, shared or disabled"
                ));
            }
            self.closed.load(Ordering::Acquire)
        };
        while let Some(first) = self.ring.wait(over) {
            let second = if self.config.unordered { self.ring.pop() } else { None };
            let overtakes = second.is_some() && self.injector.chance(0.5, self.submissions(), 8 << 8);
            let (first, second) = if overtakes { (second, Some(first)) } else { (Some(first), second) };
            for descriptor in first.iter().chain(&second) {
                self.perform(descriptor);
                self.handled.fetch_add(1, Ordering::Release);
            }
            if self.state.load(Ordering::Acquire) == HUNG {
                self.ring.sleep_until(|| self.state.load(Ordering::Acquire) != HUNG || over());
            }
        }
    }

    /// Runs a descriptor, unless the work queue has stopped.
    fn perform(&self, descriptor: &Descriptor) {
        let mut engine = self.engine();
        if self.state.load(Ordering::Acquire) != ENABLED {
            return;
        }
        self.run(&mut engine, descriptor);
    }

    fn run(&self, engine: &mut Engine, descriptor: &Descriptor) {
        match engine.run(&self.config, &self.injector, descriptor) {
            End::Ended(_) => {}
            End::Unreported(why) => self.say(why),
            End::Stopped(faults) => self.stop(faults),
        }
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the work queue because of a fault. The caller holds the lock of the engine.
    fn stop(&self, faults: Faults) {
        if faults.has(Fault::Stick) {
            self.state.store(HUNG, Ordering::Release);
            return;
        }
        self.state.store(DISABLED, Ordering::Release);
        let updated = if faults.has(Fault::Gone) {
            tree::remove(&self.dir)
        } else {
            tree::write_state(&self.dir, "disabled")
        };
        // The kernel also removes the device file.
        let updated = updated.and(std::fs::remove_file(&self.file));
        if let Err(error) = updated {
            self.say(&format!("{}: {error}", self.dir.display()));
        }
    }

    /// Disables the work queue, as `accel-config disable-wq` does: returns when the running descriptor has
    /// ended. Waiting descriptors are dropped.
    pub(crate) fn disable(&self) {
        let engine = self.engine();
        self.stop(Faults::default());
        drop(engine);
        self.ring.wake();
    }

    /// Enables the work queue again, as `accel-config enable-wq` does. Returns when the waiting descriptors
    /// are dropped.
    pub(crate) fn enable(&self) -> std::io::Result<()> {
        if self.state.load(Ordering::Acquire) != DISABLED {
            return Ok(());
        }
        while self.handled.load(Ordering::Acquire) < self.ring.pushed() {
            std::thread::yield_now();
        }
        std::fs::write(&self.file, "")?;
        self.state.store(ENABLED, Ordering::Release);
        tree::write_state(&self.dir, "enabled")
    }

    /// Makes the worker thread end.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ring.wake();
    }

    /// Returns the number of descriptors that portals and `write()` submitted.
    pub fn submissions(&self) -> u64 {
        self.submissions.load(Ordering::Relaxed)
    }

    fn say(&self, what: &str) {
        eprintln!("dsa-emu: {}: {what}", self.config.name);
    }
}
