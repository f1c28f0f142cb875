//! [`Staging`]: compares operands in device memory, through host memory of the same engine.
#![expect(unsafe_code, reason = "submits copies to the engine")]

use std::time::{Duration, Instant};

use dma_core::{
    Completion, Descriptor, DmaEngine, MemoryRequest, Outcome, QueueOptions, RawQueue, RawRegion, Result,
    Segment, racy_copy,
};

/// The longest piece that is compared at a time, in bytes. Host memory has room for one of each side.
const PIECE: usize = 64 << 10;
/// The time after which a copy to host memory counts as lost.
const LOST: Duration = Duration::from_secs(1);

/// A queue of the engine, and host memory that operands are copied to.
#[derive(Debug)]
pub(super) struct Staging {
    // Dropped first: nothing is in flight on it, or it is never dropped.
    queue: Box<dyn RawQueue>,
    host: Box<dyn RawRegion>,
    piece: usize,
}

/// The bytes could not be copied to host memory, and nothing is known of them. If the copy may still be in
/// flight, `lost` is true, and the staging memory must be leaked.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) lost: bool,
}

impl Staging {
    pub(super) fn open(engine: &dyn DmaEngine) -> Result<Self> {
        let host = engine.allocate_raw(&MemoryRequest::new(2 * PIECE))?;
        let queue = engine.open_queue_raw(&QueueOptions::new().with_depth(1))?;
        let longest = usize::try_from(engine.info().limits.max_transfer).unwrap_or(usize::MAX);
        Ok(Self { queue, host, piece: PIECE.min(longest) })
    }

    /// Compares lists of the same total length. Returns the offset and the address of the first byte of `dst`
    /// that differs.
    ///
    /// # Safety
    ///
    /// The engine's device may read the segments, and nothing writes them.
    pub(super) unsafe fn first_difference(
        &mut self,
        src: &[Segment],
        dst: &[Segment],
    ) -> Result<Option<(usize, usize)>, Unreadable> {
        let (mut offset, mut from, mut used) = (0, src.iter(), 0);
        let mut current = from.next();
        for to in dst {
            let mut at = 0;
            while at < to.len {
                let Some(source) = current else { return Ok(None) };
                let len = (source.len - used).min(to.len - at).min(self.piece);
                let part = |of: &Segment, at: usize| Segment { addr: of.addr.offset(at), len, ..*of };
                // SAFETY: this function's caller promises it for all segments, of which these are parts.
                let left = unsafe { self.fetch(part(source, used), 0) }?;
                // SAFETY: this function's caller promises it for all segments, of which these are parts.
                let right = unsafe { self.fetch(part(to, at), 1) }?;
                // SAFETY: both are host memory of this value, into which no copy is in flight.
                if let Some(differs) = unsafe { racy_copy::first_difference(left, right, len) } {
                    return Ok(Some((offset + differs, to.addr.offset(at + differs).0 as usize)));
                }
                (offset, at, used) = (offset + len, at + len, used + len);
                if used == source.len {
                    (current, used) = (from.next(), 0);
                }
            }
        }
        Ok(None)
    }

    /// Copies a piece to one half of the host memory, and waits for that.
    ///
    /// # Safety
    ///
    /// See [`first_difference`](Self::first_difference).
    unsafe fn fetch(&mut self, from: Segment, half: usize) -> Result<*const u8, Unreadable> {
        let to = self.host.info().segment(half * PIECE, from.len);
        // SAFETY: the caller promises that the source can be read; the destination is this value's, and stays
        // until the copy is reported, or is leaked.
        match unsafe { self.queue.submit(&[Descriptor::copy(0, from, to)]) } {
            Ok(1) => {}
            Ok(_) | Err(_) => return Err(Unreadable { lost: false }),
        }
        self.queue.flush();
        let begun = Instant::now();
        let mut completions = [Completion::done(0)];
        while self.queue.poll(&mut completions) == 0 {
            if begun.elapsed() > LOST {
                return Err(Unreadable { lost: true });
            }
            std::hint::spin_loop();
        }
        match completions[0].outcome {
            Outcome::Done => Ok(to.addr.as_ptr().cast_const()),
            Outcome::Failed(_) | Outcome::Aborted => Err(Unreadable { lost: false }),
        }
    }
}
