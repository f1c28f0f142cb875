//! Copies for the work queues of DOCA 1.5 to 2.2. Each work queue gets a DMA context of its own.

use std::rc::Rc;
use std::sync::Arc;

use super::Dma;
use crate::buf::Buf;
use crate::c_abi::{Handle, Outcome, c, require};
use crate::ctx::{Context, State};
use crate::dev::Dev;
use crate::pe::Pe;
use crate::task::{Submit, TaskCallback};

impl Dma {
    /// Makes a running context for `depth` tasks on `pe`. When a task ends, `ended` is called with
    /// `user_data` as the context's user data.
    /// Errors: `NO_MEMORY` if `depth` exceeds the card's number of tasks.
    pub(crate) fn joining(
        dev: Arc<Dev>,
        pe: &Rc<Pe>,
        depth: u32,
        ended: TaskCallback,
        user_data: c::doca_data,
    ) -> Outcome<Rc<Self>> {
        let range = 1..=dev.card().limits.max_tasks;
        require(range.contains(&depth), c::DOCA_ERROR_NO_MEMORY)?;
        let dma = Self::create(dev)?;
        dma.tasks.configure(Some(ended), Some(ended), depth, range)?;
        dma.ctx().set_user_data(user_data);
        dma.ctx().connect(pe)?;
        dma.ctx().start().inspect_err(|_| _ = dma.ctx().disconnect())?;
        Ok(dma)
    }

    pub(crate) fn job(&self, src: Handle<Buf>, dst: Handle<Buf>, user_data: c::doca_data) -> Outcome {
        let handle = self.alloc(src, dst, user_data)?;
        let task = handle.get()?;
        let how = Submit { flush: true, coalesce: false, validate: false };
        self.submit_task(&task.head, how).inspect_err(|_| self.free_task(&task.head))
    }

    /// Stops the context, and disconnects it from its progress engine. No task may be in flight.
    pub(crate) fn leave(&self) -> Outcome {
        match self.ctx().state() {
            State::Idle => {}
            // A job failed, so the context is stopping already.
            State::Stopping => require(self.ctx().end_stop(), c::DOCA_ERROR_NOT_PERMITTED)?,
            State::Starting | State::Running => self.ctx().stop()?,
        }
        self.ctx().disconnect()
    }
}
