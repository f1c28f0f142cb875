//! The end of descriptors that the device does not run any more, and the return of a work queue.

use std::time::Instant;

use dma_core::{ErrorKind, Outcome, Result};

use super::lists::List;
use super::{DISABLED, DsaQueue, FORKED, LOOK_EVERY};
use crate::error;

impl DsaQueue {
    /// Ends all that is not sent.
    #[cold]
    pub(super) fn abort_unsent(&mut self) {
        self.close_list();
        while let Some(place) = self.again.pop_front() {
            self.push_list(List::new(place, 1, 0, false));
        }
        if let Some((first, len)) = self.rest.take() {
            self.push_list(List::new(first, len, 0, false));
        }
        for list in self.lists.iter_mut().rev().take(self.unsent) {
            list.over = Some((Outcome::Aborted, 0));
        }
        self.unsent = 0;
    }

    /// Ends everything on a work queue that touches no memory of this process any more.
    #[cold]
    pub(super) fn give_up(&mut self, why: &'static str) {
        tracing::error!(queue = self.opened.wq.name, in_flight = self.in_flight, why, "a work queue is lost");
        self.lost = Some(why);
        self.looked = None;
        self.abort_unsent();
        for list in self.lists.iter_mut().filter(|list| list.ended.is_none()) {
            list.sent = list.at;
            list.over.get_or_insert((Outcome::Aborted, 0));
        }
    }

    /// Gives up if the kernel has disabled the work queue, which ends what is in flight there.
    #[cold]
    pub(super) fn look(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        if self.opened.fork.is_child() {
            self.give_up(FORKED);
        } else if self.opened.was_disabled(self.generation) {
            self.give_up(DISABLED);
        }
    }

    /// Uses the work queue again if it was disabled and is enabled.
    ///
    /// # Errors
    ///
    /// `DeviceLost`: it is not, or descriptors are not reported yet.
    #[cold]
    pub(super) fn recover(&mut self, why: &'static str) -> Result<()> {
        let waits = self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY);
        if why == FORKED || self.in_flight > 0 || waits {
            return Err(error::lost(why));
        }
        self.looked = Some(Instant::now());
        self.generation = self.opened.reopen(self.generation).map_err(|error| match error.kind() {
            ErrorKind::DeviceLost => error,
            _ => error::lost(why).with_source(error),
        })?;
        // Descriptors that were given up may have written theirs.
        for record in self.records.iter().chain(&self.batch_records) {
            record.take();
        }
        self.reclaim();
        self.lost = None;
        self.resets += 1;
        Ok(())
    }
}
