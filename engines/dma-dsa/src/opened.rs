//! An opened work queue, shared by an engine and its queues.

use std::sync::{PoisonError, RwLock};

use dma_core::{Error, ErrorKind, Result};
use dma_process::ForkMark;

use crate::DsaOptions;
use crate::device::{self, WorkQueue};
use crate::error::error;
use crate::portal::{Entries, Portal};

/// An opened work queue.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) wq: WorkQueue,
    pub(crate) options: DsaOptions,
    /// The open portal. A queue takes the read lock for each doorbell; opening the work queue again takes the
    /// write lock.
    pub(crate) live: RwLock<Live>,
    /// Free entries. `None` for a shared work queue, which refuses descriptors itself when it is full.
    pub(crate) entries: Option<Entries>,
    pub(crate) fork: ForkMark,
    /// Maximum number of descriptors in a batch. 1 if the work queue has no batches.
    pub(crate) batch: usize,
}

/// The portal, and its generation.
#[derive(Debug)]
pub(crate) struct Live {
    /// `None` if opening the work queue again has failed.
    pub(crate) portal: Option<Box<dyn Portal>>,
    /// Number of times that the work queue was opened again. Descriptors of earlier generations are no longer
    /// in the device.
    pub(crate) generation: u64,
}

impl Opened {
    /// Returns the number of times that the work queue was opened again.
    pub(crate) fn generation(&self) -> u64 {
        self.live.read().unwrap_or_else(PoisonError::into_inner).generation
    }

    /// Returns true if the work queue was disabled after this generation was opened, which ends the
    /// descriptors in flight. The work queue may be enabled again by now.
    pub(crate) fn was_disabled(&self, generation: u64) -> bool {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.generation != generation || device::is_disabled(&self.wq.dir) || self.is_replaced(&live)
    }

    fn is_replaced(&self, live: &Live) -> bool {
        let file = live.portal.as_ref().and_then(|portal| portal.file());
        file.is_some_and(|file| device::is_replaced(file, &self.wq.path(&self.options)))
    }

    /// Opens the work queue again after it was disabled and enabled, unless another queue has already done
    /// so. Returns the generation. Descriptors of earlier generations have ended by then.
    ///
    /// # Errors
    ///
    /// The work queue is not enabled again, cannot be opened, or was configured differently.
    #[cold]
    pub(crate) fn reopen(&self, generation: u64) -> Result<u64> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.generation != generation && live.portal.is_some() {
            return Ok(live.generation);
        }
        let wq = WorkQueue::read(&self.options, &self.wq.name)?;
        if wq != self.wq {
            return Err(changed());
        }
        if live.portal.is_some() && !self.is_replaced(&live) {
            return Err(error(ErrorKind::DeviceLost, "the work queue was not enabled again"));
        }
        live.generation += 1;
        // Close the old portal first: a dedicated work queue can be opened by one file at a time.
        live.portal = None;
        let portal = wq.open(&self.options)?;
        if self.batch > 1 && !portal.takes_batches() {
            return Err(changed());
        }
        live.portal = Some(portal);
        let queue = self.wq.name.clone();
        dma_core::deferred_log!(warn, queue, "a work queue that was disabled is used again");
        Ok(live.generation)
    }
}

fn changed() -> Error {
    error(ErrorKind::DeviceLost, "the work queue was configured differently")
        .with_hint("open the engine again")
}
