//! [`SharedQueue::copy_bytes`].

use crate::copy_bytes::{Copier, Facts, Pair, copy_bytes};
use crate::{BufferPool, OpError, Result, SharedQueue, SharedTransfer};

impl SharedQueue {
    /// Copies the bytes of `src` to `dst`, which have the same length, and waits until that is done.
    ///
    /// For bytes that are not registered. On an engine whose copies the CPU makes
    /// ([`CPU_COPIES`](crate::Capabilities::CPU_COPIES)), the calling thread copies them. Any other engine
    /// copies through buffers of `pool`, which is of the same engine: up to 8 pieces are in flight, each as
    /// long as half of its longest buffers. That takes two copies by the CPU besides the device's, so
    /// registered memory is faster. The device never has the slices.
    ///
    /// Blocks until all is copied. Waits up to
    /// [`QueueOptions::stall_timeout`](crate::QueueOptions::stall_timeout) for buffers and places that others
    /// have, and for a device that completes nothing.
    ///
    /// # Errors
    ///
    /// Before a byte is written: `LengthMismatch`; `WrongEngine` for a pool of another engine;
    /// `InvalidArgument` for a pool of buffers of 1 byte; `Closed`.
    ///
    /// Later, with a part of `dst` written: `OutOfResources` or `QueueFull` if there is no buffer or place in
    /// time; `TimedOut` if the device completes nothing, in which case the pool's buffers stay with the
    /// queue; a failure of the device, as [`SharedTransfer::wait`].
    pub fn copy_bytes(&self, pool: &BufferPool, src: &[u8], dst: &mut [u8]) -> Result<()> {
        copy_bytes(self, pool, src, dst)
    }
}

impl Copier for SharedQueue {
    type Transfer = SharedTransfer<Pair>;

    fn facts(&self) -> Option<Facts> {
        let lane = self.first_lane();
        let (means, backend, stall_timeout) = (lane.means, lane.backend, lane.stall_timeout);
        (!lane.refuses()).then_some(Facts { means, backend, stall_timeout })
    }

    fn submit_piece(&self, (src, dst): Pair) -> Result<Self::Transfer, OpError<Pair>> {
        self.copy(src, dst)
    }

    fn wait_for_piece(transfer: Self::Transfer) -> Result<Pair, OpError<Pair>> {
        transfer.wait()
    }

    fn make_room(&self) -> Option<usize> {
        // The lanes' threads poll, and other threads give places back.
        Some(0)
    }
}
