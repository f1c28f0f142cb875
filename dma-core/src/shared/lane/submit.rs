//! The submitter's side of a lane: claims a slot, passes the request on, and wakes the lane's thread.

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

use super::{ASLEEP, AWAKE, Caller, GONE, Lane};
use crate::shared::slot::Request;
use crate::{Result, Segment};

/// A slot that is being filled. If filling fails or panics, the slot returns to the free list.
struct ClaimedSlot<'a> {
    slot: u32,
    lane: &'a Lane,
}

impl Drop for ClaimedSlot<'_> {
    fn drop(&mut self) {
        // A task that found the queue full in the meantime waits for this slot.
        self.lane.release(self.slot);
    }
}

impl Lane {
    /// Submits a request, or returns `None` if every slot is taken. An error of `fill` is returned, and
    /// nothing is submitted. Lock-free. Callers with different `submitter_id`s rarely contend.
    ///
    /// After this call the device may use the memory. Therefore the caller must first put the operands into a
    /// transfer, and then call [`notice`](Self::notice), which may run the engine.
    pub(in crate::shared) fn submit(
        &self,
        submitter_id: usize,
        fill: impl FnOnce(&mut Request) -> Result<()>,
    ) -> Option<Result<u32>> {
        let slot = ClaimedSlot { slot: self.free.take(submitter_id)?, lane: self };
        // SAFETY: `free.take` returned this slot only to this thread.
        if let Err(e) = unsafe { self.slots[slot.slot as usize].submit(fill) } {
            return Some(Err(e));
        }
        let slot = ManuallyDrop::new(slot).slot;
        self.submitted[submitter_id % Self::INBOXES].push(&self.links, slot);
        Some(Ok(slot))
    }

    /// Submits a request for a copy between two ranges of at least 1 byte, as [`submit`](Self::submit) does.
    // Not inline, so that the loops of programs whose copies end within the call keep more registers.
    #[inline(never)]
    pub(in crate::shared) fn submit_flat(
        &self,
        submitter_id: usize,
        src: Segment,
        dst: Segment,
    ) -> Option<u32> {
        let slot = self.free.take(submitter_id)?;
        // SAFETY: `free.take` returned this slot only to this thread.
        unsafe { self.slots[slot as usize].submit_flat(src, dst) };
        self.submitted[submitter_id % Self::INBOXES].push(&self.links, slot);
        Some(slot)
    }

    /// Wakes the lane's thread if it sleeps. If it has exited, ends the request.
    #[inline]
    pub(in crate::shared) fn notice(&self) {
        let presence = self.presence();
        if presence != AWAKE {
            self.rouse(presence);
        }
    }

    /// Returns whether the lane's thread will see a submitted request without a [`notice`](Self::notice).
    #[inline]
    pub(in crate::shared) fn is_awake(&self) -> bool {
        self.presence() == AWAKE
    }

    #[inline]
    fn presence(&self) -> u8 {
        // Either the thread sees the request before it sleeps or exits, or this load sees ASLEEP or GONE. The
        // reason is that four accesses are sequentially consistent: the push of the request, this load, and
        // the thread's store of its state and its check of the inboxes.
        self.presence.load(Ordering::SeqCst)
    }

    /// Does the work of [`notice`](Self::notice) if the lane's thread is not awake.
    #[cold]
    fn rouse(&self, presence: u8) {
        if presence == GONE {
            // The lane was closed while this thread submitted. A request that stays in the inbox would never
            // end, so end it here. Wait for the lock, which is now held only briefly.
            let mut core = self.enter();
            self.run(&mut core, Caller::Closer);
            self.leave(core);
        } else if self.presence.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}
