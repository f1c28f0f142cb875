//! [`Recovery`]: detaches and attaches a channel that halted or hangs, on a separate thread.
#![expect(unsafe_code, reason = "detaches a channel that has halted, which the caller guarantees")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dma_core::{Result, with_deferred_log};
use dma_process::{lock, with_signals_blocked};

use crate::channels::{Channel, Unfinished};
use crate::env::Environment;
use crate::{PciAddress, ffi};

/// Time limit for attaching a channel again. DPDK offers a released function again after two seconds.
const REATTACH_TIMEOUT: Duration = Duration::from_secs(6);
pub(crate) const REATTACH_PAUSE: Duration = Duration::from_millis(20);

/// The recovery of a channel. It takes milliseconds to seconds, so polls do not wait for its end.
#[derive(Debug)]
pub(crate) struct Recovery(Arc<RecoveryJob>);

#[derive(Debug)]
struct RecoveryJob {
    environment: Arc<Environment>,
    channel: Channel,
    /// The channel's descriptors in flight, if it hangs.
    left: Option<Unfinished>,
    state: Mutex<RecoveryState>,
}

#[derive(Debug)]
enum RecoveryState {
    /// The channel hangs, and is being reset.
    Stopping,
    /// The reset failed. The pool owns the channel.
    Hangs,
    /// The channel has stopped, and is being attached again.
    Running,
    Over(Result<Channel>),
    /// The queue was dropped.
    Abandoned,
}

impl Recovery {
    /// Starts the recovery of a channel that has halted, or that hangs with `left` in flight. A channel that
    /// hangs is reset first.
    ///
    /// # Safety
    ///
    /// The channel is attached and not used any more. It has halted, unless it has descriptors in flight.
    pub(crate) unsafe fn start(
        environment: &Arc<Environment>,
        channel: Channel,
        left: Option<Unfinished>,
    ) -> Self {
        let state = if left.is_some() { RecoveryState::Stopping } else { RecoveryState::Running };
        let job = Arc::new(RecoveryJob {
            environment: Arc::clone(environment),
            channel,
            left,
            state: Mutex::new(state),
        });
        let there = Arc::clone(&job);
        // SAFETY: the caller of `start` passes an attached channel that halted or hangs, and that is not used
        // any more. This closure makes the only call of `run`, unless the thread does not start.
        let work = move || unsafe { there.run() };
        let thread = std::thread::Builder::new().name("dma-ioat recovery".to_owned());
        if let Err(why) = with_signals_blocked(|| thread.spawn(work)) {
            dma_core::deferred_log!(warn, %why, "no thread for the recovery of a channel");
            // SAFETY: the thread did not start, so this is the only call of `run`. The caller of `start`
            // passes an attached channel that halted or hangs, and that is not used any more.
            unsafe { job.run() };
        }
        Self(job)
    }

    /// Returns true if the channel had halted, or was reset.
    pub(crate) fn is_stopped(&self) -> bool {
        !matches!(&*lock(&self.0.state), RecoveryState::Stopping | RecoveryState::Hangs)
    }

    /// Takes the result of the recovery, if it is over.
    pub(crate) fn take(&mut self) -> Option<Result<Channel>> {
        let mut state = lock(&self.0.state);
        match std::mem::replace(&mut *state, RecoveryState::Abandoned) {
            RecoveryState::Over(result) => Some(result),
            running => {
                *state = running;
                None
            }
        }
    }
}

impl RecoveryJob {
    /// # Safety
    ///
    /// The requirements are those of [`Recovery::start`]. This function is called only once per job.
    unsafe fn run(&self) {
        if let Some(left) = &self.left {
            // SAFETY: a channel with descriptors left is attached and hangs, and its queue does not use it
            // any more.
            let stopped = unsafe { stop(&self.environment, &self.channel, left.clone()) };
            let mut state = lock(&self.state);
            match (&*state, stopped) {
                (RecoveryState::Abandoned, true) => {}
                (RecoveryState::Abandoned, false) => {
                    drop(state);
                    return self.environment.pool().end_restart(&self.channel, None);
                }
                (_, true) => *state = RecoveryState::Running,
                (_, false) => {
                    *state = RecoveryState::Hangs;
                    return;
                }
            }
        }
        // SAFETY: without descriptors left, the channel had halted before. Otherwise it was stopped above. No
        // other code uses it.
        let result = unsafe { reattach(&self.environment, &self.channel) };
        let mut state = lock(&self.state);
        match (&*state, result) {
            (RecoveryState::Abandoned, result) => {
                self.environment.pool().end_restart(&self.channel, result.ok().as_ref())
            }
            (_, result) => *state = RecoveryState::Over(result),
        }
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        match std::mem::replace(&mut *state, RecoveryState::Abandoned) {
            RecoveryState::Over(Ok(channel)) => self.0.environment.pool().give_back(&channel),
            RecoveryState::Running | RecoveryState::Stopping => {
                self.0.environment.pool().mark_restarting(&self.0.channel)
            }
            RecoveryState::Over(Err(_)) | RecoveryState::Hangs | RecoveryState::Abandoned => {}
        }
    }
}

/// Resets a channel that hangs, so that it can be detached. If the reset fails, the channel is lost.
///
/// # Safety
///
/// The channel is attached, and not used any more.
unsafe fn stop(environment: &Environment, channel: &Channel, left: Unfinished) -> bool {
    // SAFETY: the caller guarantees that the function's channel is attached, and that no other code uses it.
    let stopped = unsafe { ffi::stop(&environment.spdk, channel.function) };
    if stopped {
        let address = channel.address;
        dma_core::deferred_log!(warn, %address, "an I/OAT channel did not answer; it was reset");
    } else {
        with_deferred_log(|| environment.pool().lose(channel, left));
    }
    stopped
}

/// Tries to recover all lost channels, or the lost channel at `address`. Returns true if one of them is free
/// now. Blocks, as [`reattach`] does.
pub(crate) fn revive(environment: &Arc<Environment>, address: Option<PciAddress>) -> bool {
    let lost: Vec<_> = {
        let mut pool = environment.pool();
        std::iter::from_fn(|| pool.take_lost(address)).collect()
    };
    let mut some = false;
    for (channel, left) in lost {
        // SAFETY: the channel is attached and marked as taken, and its queue was dropped, so no other code
        // uses it. Its callbacks write to the count that `left` holds.
        let runs = unsafe { ffi::process(&environment.spdk, channel.raw) };
        if runs && left.is_over() {
            let address = channel.address;
            dma_core::deferred_log!(warn, %address, "an I/OAT channel has recovered");
            environment.pool().give_back(&channel);
            some = true;
            continue;
        }
        // SAFETY: the channel is attached and marked as taken, and its queue was dropped, so no other code
        // uses it.
        if runs && !unsafe { stop(environment, &channel, left) } {
            continue;
        }
        // SAFETY: the channel has halted or was stopped, and no other code uses it.
        match unsafe { reattach(environment, &channel) } {
            Ok(channel) => {
                environment.pool().give_back(&channel);
                some = true;
            }
            Err(why) => {
                let address = channel.address;
                dma_core::deferred_log!(error, %address, %why, "an I/OAT channel cannot be attached again")
            }
        }
    }
    some
}

/// Detaches a channel that halted or was stopped, and attaches it again. Blocks for milliseconds, or for
/// seconds if DPDK has to scan for the function.
///
/// # Safety
///
/// The channel has halted or was stopped, and is not used any more.
unsafe fn reattach(environment: &Arc<Environment>, channel: &Channel) -> Result<Channel> {
    let spdk = &environment.spdk;
    let until = Instant::now() + REATTACH_TIMEOUT;
    with_deferred_log(|| {
        let mut pool = environment.pool();
        pool.restarting.insert(channel.address);
        // SAFETY: the caller guarantees that the channel halted or was stopped, and that it is not used any
        // more.
        unsafe { pool.detach(spdk, channel) };
    });
    loop {
        let over = with_deferred_log(|| {
            let mut pool = environment.pool();
            let probed = pool.probe(spdk);
            if let Some(channel) = pool.take_back(channel.address) {
                return Some(Ok(channel));
            }
            if Instant::now() >= until || pool.broken.contains(&channel.address) {
                pool.restarting.remove(&channel.address);
                return Some(Err(probed.err().unwrap_or_else(|| pool.absence_error(channel.address))));
            }
            None
        });
        if let Some(over) = over {
            return over;
        }
        std::thread::sleep(REATTACH_PAUSE);
    }
}
