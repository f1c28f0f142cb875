//! [`Recovery`]: a channel that halted is detached and attached again, beside its queue.
#![expect(unsafe_code, reason = "hands on what is promised of a halted channel")]

use std::sync::{Arc, Mutex};

use dma_core::Result;

use crate::env::{Environment, lock};
use crate::pool::{self, Channel};

/// A channel on its way back. That takes milliseconds, or seconds, so polls do not wait for it.
#[derive(Debug)]
pub(crate) struct Recovery(Arc<Job>);

#[derive(Debug)]
struct Job {
    environment: Arc<Environment>,
    channel: Channel,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running,
    Over(Result<Channel>),
    /// Nobody waits for it any more.
    Abandoned,
}

impl Recovery {
    /// Begins, on a thread of its own.
    ///
    /// # Safety
    ///
    /// The channel has halted, and nobody uses it any more.
    pub(crate) unsafe fn start(environment: &Arc<Environment>, channel: Channel) -> Self {
        let job = Arc::new(Job {
            environment: Arc::clone(environment),
            channel,
            state: Mutex::new(State::Running),
        });
        let there = Arc::clone(&job);
        // SAFETY: the caller's promise, and once only.
        let work = move || unsafe { there.run() };
        if let Err(why) = std::thread::Builder::new().name("dma-ioat recovery".to_owned()).spawn(work) {
            tracing::warn!(%why, "no thread for the recovery of a channel");
            // SAFETY: as above; the thread did not start.
            unsafe { job.run() };
        }
        Self(job)
    }

    /// How it went, once it is over.
    pub(crate) fn take(&mut self) -> Option<Result<Channel>> {
        let mut state = lock(&self.0.state);
        match std::mem::replace(&mut *state, State::Abandoned) {
            State::Over(result) => Some(result),
            running => {
                *state = running;
                None
            }
        }
    }
}

impl Job {
    /// # Safety
    ///
    /// The channel has halted, nobody uses it any more, and this is called once.
    unsafe fn run(&self) {
        // SAFETY: the caller's promise.
        let result = unsafe { pool::reattach(&self.environment, &self.channel) };
        let mut state = lock(&self.state);
        match (&*state, result) {
            (State::Abandoned, result) => {
                self.environment.pool().came_back(&self.channel, result.ok().as_ref())
            }
            (_, result) => *state = State::Over(result),
        }
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        match std::mem::replace(&mut *state, State::Abandoned) {
            State::Over(Ok(channel)) => self.0.environment.pool().give_back(&channel),
            State::Running => self.0.environment.pool().comes_back(&self.0.channel),
            State::Over(Err(_)) | State::Abandoned => {}
        }
    }
}
