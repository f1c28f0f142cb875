//! A simulated device's queue: a channel of the model.
#![expect(unsafe_code, reason = "implements the contract's queue")]

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dma_core::{
    Completion, Descriptor, EngineId, Error, ErrorKind, NativeError, QueueEvents, QueueOptions, QueueStats,
    RawQueue, Result,
};

use super::event::TimerFd;
use super::shared_device::{DeviceState, SharedDevice};
use super::{Clock, error};
use crate::model::{ChannelError, ChannelId, ChannelState, HaltCause, Refused};

/// Maximum number of model events in one poll, which bounds its duration.
const EVENTS_PER_POLL: u32 = 4_096;

#[derive(Debug)]
pub(super) struct SimQueue {
    shared: Arc<SharedDevice>,
    channel: ChannelId,
    depth: usize,
    events: Option<SimEvents>,
    resets: u64,
    stopped: bool,
    /// Token of a descriptor that was refused after earlier descriptors of its batch were accepted, and the
    /// reason. The next submission of the refused descriptor returns this reason.
    refused: Option<(u64, Refused)>,
}

impl SimQueue {
    pub(super) fn open(shared: &Arc<SharedDevice>, options: &QueueOptions, wakes: bool) -> Result<Self> {
        let event = wakes.then(|| Arc::new(TimerFd::new()));
        let depth = u32::try_from(options.depth).unwrap_or(u32::MAX);
        let channel = shared.lock_now().device.open_channel(depth).map_err(|error| {
            let kind = match error {
                ChannelError::NoneFree { .. } => ErrorKind::OutOfResources,
                ChannelError::Depth { .. } => ErrorKind::OutOfRange,
                ChannelError::DeviceGone => ErrorKind::DeviceLost,
                _ => ErrorKind::InvalidArgument,
            };
            let wrapped = Error::new(kind, error.to_string());
            match error {
                ChannelError::Depth { requested, max } => wrapped.with_numbers(requested.into(), max.into()),
                _ => wrapped,
            }
        })?;
        Ok(Self {
            shared: Arc::clone(shared),
            channel,
            depth: options.depth,
            events: event.map(|event| SimEvents { shared: Arc::clone(shared), channel, event }),
            resets: 0,
            stopped: false,
            refused: None,
        })
    }
}

/// Restarts a channel that the device took down, unless the queue was stopped. Adds the restart to `resets`.
fn recover(state: &mut DeviceState, channel: ChannelId, stopped: bool, resets: &mut u64) {
    if stopped {
        return;
    }
    if let Some(ChannelState::Halted(HaltCause::TaskFailed | HaltCause::Reset)) = state.device.state(channel)
        && state.device.restart(channel).is_ok()
    {
        *resets += 1;
        let (channel, resets) = (channel.index(), *resets);
        dma_core::deferred_log!(warn, channel, resets, "the device reset a queue, which runs again");
    }
}

// SAFETY: the model reports every task once, or, if a fault plan loses the report, never. It accesses
// only the task's segments, which it has checked to lie in their regions, and stops when the task ends. The
// model and `poll` hold the lock of the device, so the polling thread sees all written bytes. Tasks start
// only after a doorbell. Dropping the queue stops the channel, which ends all tasks.
unsafe impl RawQueue for SimQueue {
    fn engine_id(&self) -> EngineId {
        self.shared.id
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if let (Some((token, why)), Some(first)) = (self.refused.take(), batch.first())
            && token == first.token()
        {
            return Err(error::refused(why));
        }
        let mut state = self.shared.lock_now();
        recover(&mut state, self.channel, self.stopped, &mut self.resets);
        for (taken, descriptor) in batch.iter().enumerate() {
            match state.device.submit(self.channel, descriptor) {
                Ok(()) => {}
                Err(Refused::Full { .. }) => return Ok(taken),
                Err(why) if taken == 0 => return Err(error::refused(why)),
                Err(why) => {
                    self.refused = Some((descriptor.token(), why));
                    return Ok(taken);
                }
            }
        }
        Ok(batch.len())
    }

    fn flush(&mut self) {
        let mut state = self.shared.lock_now();
        // This cannot fail, because the channel exists as long as the queue.
        let _ = state.device.doorbell(self.channel);
        if state.is_asleep(self.channel) {
            // On a timeless device, the tasks have already ended.
            state.wake();
        }
        if self.shared.clock == Clock::Real
            && state.is_asleep(self.channel)
            && let (Some(events), Some(at)) = (&self.events, state.device.next_event())
        {
            // The next event may be earlier than the event that the sleeper waits for.
            events.event.set(self.shared.until(at));
        }
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let mut state = self.shared.lock_now();
        if self.shared.clock == Clock::Virtual {
            for _ in 0..EVENTS_PER_POLL {
                if state.device.has_completion(self.channel) || state.device.running(self.channel) == 0 {
                    break;
                }
                let Some(at) = state.device.next_event() else { break };
                state.advance(at);
            }
        }
        let mut n = 0;
        while n < completions.len()
            && let Some(report) = state.device.poll(self.channel)
        {
            completions[n] = error::completion(report);
            n += 1;
        }
        recover(&mut state, self.channel, self.stopped, &mut self.resets);
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        error::explain(native)
    }

    fn stop(&mut self) {
        self.stopped = true;
        let mut state = self.shared.lock_now();
        let _ = state.device.stop(self.channel);
        state.wake();
    }

    fn stats(&self) -> QueueStats {
        let stats = self.shared.lock().device.stats(self.channel).unwrap_or_default();
        QueueStats::new(stats.doorbells, self.resets)
    }

    fn lost(&self) -> Option<Error> {
        self.shared.lock().device.is_dead().then(|| error::refused(Refused::DeviceGone))
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.events.as_mut().map(|events| events as _)
    }
}

/// Wakes up the owner of a queue.
#[derive(Debug)]
struct SimEvents {
    shared: Arc<SharedDevice>,
    channel: ChannelId,
    event: Arc<TimerFd>,
}

impl QueueEvents for SimEvents {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.event.fd()
    }

    fn arm(&mut self) -> Result<bool> {
        self.event.fd()?;
        let mut state = self.shared.lock_now();
        if state.device.has_completion(self.channel) || state.device.is_dead() {
            return Ok(false);
        }
        let next = state.device.next_event();
        match self.shared.clock {
            // On the virtual clock, polling advances time to this event.
            Clock::Virtual if next.is_some() && state.device.running(self.channel) > 0 => return Ok(false),
            Clock::Virtual | Clock::Manual => {}
            Clock::Real => {
                if let Some(at) = next {
                    self.event.set(self.shared.until(at));
                }
            }
        }
        state.sleep(self.channel, &self.event);
        Ok(true)
    }

    fn disarm(&mut self) {
        self.shared.lock().rise(self.channel);
        self.event.clear();
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.rise(self.channel);
        // The channel exists, and stopping it ends all tasks in flight.
        let _ = state.device.stop(self.channel);
        while state.device.poll(self.channel).is_some() {}
        let closed = state.device.close_channel(self.channel);
        debug_assert!(closed.is_ok(), "{closed:?}");
    }
}
