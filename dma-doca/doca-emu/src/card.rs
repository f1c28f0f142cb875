//! A card: what all of its functions share, which is one DMA engine.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dma_sim::model::{
    Device, DeviceConfig, Found as ModelFound, OnFailure, Profile, Reporting, Time, ZeroLength,
};

use crate::config::{CardConfig, Clock, Found, Order};
use crate::door::{Outcome, c, require};

/// Limits that the configuration does not state for the profile without a device.
const MAX_BUF_SIZE: u64 = 2 << 20;
const MAX_LIST_LEN: u32 = 64;

/// A card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) config: CardConfig,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    /// Some faults are found when a task is submitted: each goes to the device at once.
    pub(crate) eager: bool,
    /// Contexts being created right now.
    pub(crate) creating: AtomicU32,
    /// Bytes of memory that count as locked.
    locked: AtomicU64,
    started: Instant,
    engine: Mutex<Device>,
}

/// What the card says that it can do, and does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_buf_size: u64,
    pub(crate) max_list_len: u32,
    pub(crate) max_tasks: u32,
    /// Tasks that one context can have in flight; others are refused with `AGAIN`.
    pub(crate) queue_depth: u32,
    pub(crate) over_limit: Found,
}

impl Card {
    pub(crate) fn new(config: CardConfig) -> Self {
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
        };
        profile.max_task = limits.max_buf_size;
        profile.max_segments = limits.max_list_len;
        profile.depth = Profile::DEPTH_MAX;
        profile.channels = config.max_contexts.unwrap_or(1 << 16);
        profile.in_order = config.order.map_or(ideal, |order| order == Order::Submitted);
        if ideal && profile.in_order {
            profile = profile.timeless();
        }
        // Manners of a BlueField, whatever its times: mistakes are found in the engine and take the context down.
        profile.on_failure = OnFailure::Halt;
        profile.zero_length = ZeroLength::Mistake(ModelFound::InEngine);
        profile.protection = ModelFound::InEngine;
        profile.oversize = ModelFound::InEngine;
        let model = DeviceConfig::new(profile).with_seed(config.seed).with_faults(config.faults.clone());
        // What could be wrong with it was checked when the configuration was read.
        let engine = Device::new(model).or_else(|_| Device::new(DeviceConfig::new(Profile::ideal())));
        let Ok(engine) = engine else { unreachable!("the ideal profile is valid") };
        Self {
            clock: config.clock.unwrap_or(if ideal { Clock::Virtual } else { Clock::Real }),
            eager: !config.faults.rules.is_empty(),
            limits,
            creating: AtomicU32::new(0),
            locked: AtomicU64::new(0),
            started: Instant::now(),
            engine: Mutex::new(engine),
            config,
        }
    }

    /// The engine, with its time being what it is now.
    #[inline]
    pub(crate) fn engine(&self) -> MutexGuard<'_, Device> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        if self.clock == Clock::Real {
            engine.advance(self.started.elapsed().into());
        }
        engine
    }

    /// Locks memory, as registering does.
    ///
    /// # Errors
    ///
    /// The configured limit would be exceeded.
    pub(crate) fn lock_memory(&self, len: u64) -> Outcome {
        let limit = self.config.memlock.map_or(u64::MAX, |size| size.0);
        let more = |locked: u64| locked.checked_add(len).filter(|locked| *locked <= limit);
        let locked = self.locked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        require(locked.is_ok(), c::DOCA_ERROR_NOT_PERMITTED)
    }

    pub(crate) fn unlock_memory(&self, len: u64) {
        self.locked.fetch_sub(len, Ordering::Relaxed);
    }

    /// How long from now until the engine's time is `at`.
    pub(crate) fn until(&self, at: Time) -> Duration {
        // Up to the next nanosecond: waking too early would be in vain.
        (Duration::from(at) + Duration::from_nanos(1)).saturating_sub(self.started.elapsed())
    }
}
