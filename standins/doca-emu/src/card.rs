//! Cards. All functions of a card share one DMA engine.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use dma_process::lock;
use dma_sim::model::{
    Device, DeviceConfig, Found as ModelFound, OnFailure, Profile, Reporting, Time, ZeroLength,
};

use crate::c_abi::{Outcome, c, require};
use crate::config::{CardConfig, Clock, DestinationData, Found, Order};
use crate::notifier::Timer;

const MAX_BUF_SIZE: u64 = 2 << 20;
const MAX_LIST_LEN: u32 = 64;

#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) config: CardConfig,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    /// Set if faults are configured. Tasks then go to the device at submission, because some faults occur at
    /// the submission of a task.
    pub(crate) eager: bool,
    pub(crate) creating: AtomicU32,
    /// Amount of locked memory, in bytes.
    locked: AtomicU64,
    started: Instant,
    engine: Mutex<Device>,
    sleepers: Mutex<Vec<Weak<Timer>>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_buf_size: u64,
    pub(crate) max_list_len: u32,
    pub(crate) max_tasks: u32,
    /// Maximum number of tasks in flight per context. Further tasks are refused with `AGAIN`.
    pub(crate) queue_depth: u32,
    pub(crate) over_limit: Found,
    /// If set, a copy overwrites its destination's data. Otherwise it writes after the data.
    pub(crate) replaces: bool,
    /// If set, a side of the card can copy memory that it exported itself.
    pub(crate) self_import: bool,
}

impl Card {
    /// Makes a card.
    /// Errors: the reason why the card's device cannot be made.
    pub(crate) fn new(config: CardConfig) -> Result<Self, String> {
        let ideal = config.profile.name == "ideal";
        let mut profile = config.profile.clone();
        if ideal {
            profile.max_task = MAX_BUF_SIZE;
            profile.max_segments = MAX_LIST_LEN;
            profile.reporting = Reporting::Each { coalescing: true };
        }
        let limits = Limits {
            max_buf_size: config.max_buf_size.map_or(profile.max_task, |size| size.0),
            max_list_len: config.max_list_len.unwrap_or(profile.max_segments),
            max_tasks: config.max_tasks.unwrap_or(profile.depth),
            queue_depth: config.queue_depth.unwrap_or(Profile::DEPTH_MAX),
            over_limit: config.over_limit.unwrap_or(Found::Engine),
            replaces: match config.destination_data {
                Some(data) => data == DestinationData::Replace,
                // Programs for 1.5 to 2.2 submit a destination again without resetting its data, and work
                // on real cards.
                None => cfg!(workq),
            },
            self_import: config.self_import.unwrap_or(ideal),
        };
        profile.max_task = limits.max_buf_size;
        profile.max_segments = limits.max_list_len;
        profile.depth = Profile::DEPTH_MAX;
        profile.channels = config.max_contexts.unwrap_or(1 << 16);
        profile.in_order = config.order.map_or(ideal, |order| order == Order::Submitted);
        if ideal && profile.in_order {
            profile = profile.timeless();
        }
        // With every profile, mistakes are found as on a BlueField: in the engine, which then stops the
        // context.
        profile.on_failure = OnFailure::Halt;
        profile.zero_length = ZeroLength::Mistake(ModelFound::InEngine);
        profile.protection = ModelFound::InEngine;
        profile.oversize = ModelFound::InEngine;
        let model = DeviceConfig::new(profile).with_seed(config.seed).with_faults(config.faults.clone());
        let engine = Device::new(model).map_err(|error| error.to_string())?;
        Ok(Self {
            clock: config.clock.unwrap_or(if ideal { Clock::Virtual } else { Clock::Real }),
            eager: !config.faults.rules.is_empty(),
            limits,
            creating: AtomicU32::new(0),
            locked: AtomicU64::new(0),
            started: Instant::now(),
            engine: Mutex::new(engine),
            sleepers: Mutex::default(),
            config,
        })
    }

    /// Locks the engine. With the clock `Real`, advances the engine to the present time.
    #[inline]
    pub(crate) fn engine(&self) -> MutexGuard<'_, Device> {
        let mut engine = lock(&self.engine);
        if self.clock == Clock::Real {
            engine.advance(self.started.elapsed().into());
        }
        engine
    }

    /// Registers `timer`, which rings when the card has vanished.
    pub(crate) fn sleep(&self, timer: &Arc<Timer>) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.retain(|sleeper| {
            sleeper.strong_count() > 0 && !std::ptr::eq(sleeper.as_ptr(), &raw const **timer)
        });
        sleepers.push(Arc::downgrade(timer));
    }

    /// Wakes all sleeping progress engines, because the card has vanished.
    #[cold]
    pub(crate) fn wake_all(&self) {
        let sleepers = std::mem::take(&mut *lock(&self.sleepers));
        sleepers.iter().filter_map(Weak::upgrade).for_each(|timer| timer.ring(Duration::ZERO));
    }

    /// Adds `len` bytes to the locked memory.
    /// Errors: `NOT_PERMITTED` if the configured limit would be exceeded.
    pub(crate) fn lock_memory(&self, len: u64) -> Outcome {
        let limit = self.config.memlock.map_or(u64::MAX, |size| size.0);
        let more = |locked: u64| locked.checked_add(len).filter(|locked| *locked <= limit);
        let locked = self.locked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        require(locked.is_ok(), c::DOCA_ERROR_NOT_PERMITTED)
    }

    pub(crate) fn unlock_memory(&self, len: u64) {
        self.locked.fetch_sub(len, Ordering::Relaxed);
    }

    /// Returns the real time from now until the engine's time is `at`.
    pub(crate) fn until(&self, at: Time) -> Duration {
        // Round up, because an early wake-up would find no event.
        (Duration::from(at) + Duration::from_nanos(1)).saturating_sub(self.started.elapsed())
    }
}
