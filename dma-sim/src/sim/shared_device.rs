//! State that an engine, its regions and its queues share: the device, its clock and the sleeping
//! owners of queues.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dma_core::EngineId;
use dma_process::lock;

use super::Clock;
use super::event::TimerFd;
use crate::model::{ChannelId, Device, Time};

#[derive(Debug)]
pub(super) struct SharedDevice {
    pub(super) id: EngineId,
    pub(super) clock: Clock,
    started: Instant,
    state: Mutex<DeviceState>,
}

/// The device, and the channel and the event of each queue whose owner sleeps.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub(super) device: Device,
    sleepers: Vec<(ChannelId, Arc<TimerFd>)>,
}

impl SharedDevice {
    pub(super) fn new(device: Device, clock: Clock) -> Self {
        let state = Mutex::new(DeviceState { device, sleepers: Vec::new() });
        Self { id: EngineId::unique(), clock, started: Instant::now(), state }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DeviceState> {
        lock(&self.state)
    }

    /// Locks the state. On the real clock, advances the device to the current time.
    pub(super) fn lock_now(&self) -> MutexGuard<'_, DeviceState> {
        let mut state = self.lock();
        if self.clock == Clock::Real {
            let now = self.started.elapsed().into();
            state.advance(now);
        }
        state
    }

    /// Returns the duration from now until the model time `at`, on the real clock.
    pub(super) fn until(&self, at: Time) -> Duration {
        // The duration is rounded up, because waking up too early would be useless.
        let at = Duration::from(at) + Duration::from_nanos(1);
        at.saturating_sub(self.started.elapsed())
    }
}

impl DeviceState {
    /// Advances the device's time, and wakes up the owners of queues with completions, or all owners if the
    /// device is dead.
    pub(super) fn advance(&mut self, to: Time) {
        self.device.advance(to);
        self.wake();
    }

    pub(super) fn wake(&mut self) {
        let device = &self.device;
        self.sleepers.retain(|(channel, event)| {
            let over = device.has_completion(*channel) || device.is_dead();
            if over {
                event.signal();
            }
            !over
        });
    }

    /// Registers `event`, to be signalled at the next completion on `channel`.
    pub(super) fn sleep(&mut self, channel: ChannelId, event: &Arc<TimerFd>) {
        if !self.is_asleep(channel) {
            self.sleepers.push((channel, Arc::clone(event)));
        }
    }

    pub(super) fn is_asleep(&self, channel: ChannelId) -> bool {
        self.sleepers.iter().any(|(sleeper, _)| *sleeper == channel)
    }

    pub(super) fn rise(&mut self, channel: ChannelId) {
        self.sleepers.retain(|(sleeper, _)| *sleeper != channel);
    }
}
