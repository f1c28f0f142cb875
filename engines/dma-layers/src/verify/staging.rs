//! [`Staging`]: reads pieces of operands in device memory by copying them to host memory of the same engine.
#![expect(unsafe_code, reason = "submits copies to the engine")]

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use dma_core::{
    Completion, Descriptor, DmaEngine, MemoryRequest, Outcome, QueueOptions, RawQueue, RawRegion, Result,
    Segment, racy_copy,
};

/// Maximum length of a piece, in bytes. The host memory has room for one piece of the source and one of the
/// destination.
const PIECE: usize = 64 << 10;
/// A copy to host memory counts as lost if it has not ended after this time and after [`LOST_POLLS`] polls.
const LOST_TIME: Duration = Duration::from_secs(1);
/// Minimum number of polls before a copy counts as lost, so that a copy does not count as lost only because
/// the thread did not run.
const LOST_POLLS: u32 = 1000;

/// A queue of the engine, and host memory to which pieces of a source and a destination are copied.
#[derive(Debug)]
pub(super) struct Staging {
    /// The queue and the host memory are leaked if a copy in flight does not end.
    queue: ManuallyDrop<Box<dyn RawQueue>>,
    host: ManuallyDrop<Box<dyn RawRegion>>,
    max_piece: usize,
    /// The length of the current pieces.
    len: usize,
    in_flight: usize,
    /// True until [`poll`](Self::poll) has returned the outcome of the current pieces.
    asked: bool,
    /// True if a copy of the current pieces failed.
    failed: bool,
    begun: Instant,
    polls: u32,
}

/// The state of the current pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pieces {
    /// No pieces are requested.
    None,
    /// The pieces are being copied to host memory.
    InFlight,
    /// The pieces are in host memory.
    Fetched,
    /// The engine refused or failed a copy, and no copy is in flight.
    Failed,
    /// A copy does not end, so the device may still read the operand and write the host memory.
    Lost,
}

impl Staging {
    pub(super) fn open(engine: &dyn DmaEngine) -> Result<Self> {
        let host = engine.allocate_raw(&MemoryRequest::new(2 * PIECE))?;
        let queue = engine.open_queue_raw(&QueueOptions::new().with_depth(2))?;
        let longest = usize::try_from(engine.info().limits.max_transfer).unwrap_or(usize::MAX);
        Ok(Self {
            queue: ManuallyDrop::new(queue),
            host: ManuallyDrop::new(host),
            max_piece: PIECE.min(longest),
            len: 0,
            in_flight: 0,
            asked: false,
            failed: false,
            begun: Instant::now(),
            polls: 0,
        })
    }

    /// Returns the maximum length of a piece.
    pub(super) fn max_piece(&self) -> usize {
        self.max_piece
    }

    /// Starts to copy two pieces of the same length to host memory. No earlier piece may be in flight.
    ///
    /// # Safety
    ///
    /// The device may read the pieces, and they are not written, until [`poll`](Self::poll) returns
    /// [`Pieces::Fetched`] or [`Pieces::Failed`].
    pub(super) unsafe fn fetch(&mut self, pieces: [Segment; 2]) {
        debug_assert!(self.in_flight == 0 && pieces.iter().all(|piece| piece.len <= self.max_piece));
        (self.len, self.asked) = (pieces[0].len, true);
        (self.begun, self.polls) = (Instant::now(), 0);
        let copies = [0, 1].map(|half| {
            let to = self.host.info().segment(half * PIECE, self.len);
            Descriptor::copy(half as u64, pieces[half], to)
        });
        // SAFETY: the caller promises that the sources can be read. The destinations belong to this value,
        // which keeps them until the copies are reported, or leaks them.
        self.in_flight = unsafe { self.queue.submit(&copies) }.unwrap_or(0);
        self.failed = self.in_flight < copies.len();
        self.queue.flush();
    }

    /// Makes progress, and returns the state of the pieces. Returns `Fetched` or `Failed` only once.
    pub(super) fn poll(&mut self) -> Pieces {
        if self.in_flight > 0 {
            let mut completions = [Completion::done(0); 2];
            let ended = self.queue.poll(&mut completions);
            self.in_flight -= ended;
            self.failed |= completions[..ended].iter().any(|ended| ended.outcome != Outcome::Done);
            self.polls = self.polls.saturating_add(1);
        }
        if self.in_flight > 0 {
            let lost = self.polls > LOST_POLLS && self.begun.elapsed() > LOST_TIME;
            return if lost { Pieces::Lost } else { Pieces::InFlight };
        }
        match (std::mem::take(&mut self.asked), self.failed) {
            (false, _) => Pieces::None,
            (true, true) => Pieces::Failed,
            (true, false) => Pieces::Fetched,
        }
    }

    /// Returns the length of the fetched pieces.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the offset of the first byte that differs between the fetched pieces.
    pub(super) fn first_difference(&self) -> Option<usize> {
        let piece = |half: usize| self.host.info().addr.offset(half * PIECE).as_ptr().cast_const();
        // SAFETY: both pieces are in host memory of this value, with at least `len` bytes each, and no copy
        // to it is in flight.
        unsafe { racy_copy::first_difference(piece(0), piece(1), self.len) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The queue and the host memory are leaked, because the device may still write the memory.
            return;
        }
        // SAFETY: the queue is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.queue) };
        // SAFETY: the host memory is not used afterwards, and no descriptor in flight names it.
        unsafe { ManuallyDrop::drop(&mut self.host) };
    }
}

/// A position in the lists of a copy. The position passes through the destinations one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// The index of the destination's segment.
    dst: usize,
    /// The index of the source's segment.
    src: usize,
    /// Number of compared bytes in the current segment of the source, and of the destination.
    used: [usize; 2],
    /// Number of compared bytes of the destination.
    offset: usize,
}

impl Cursor {
    /// Returns the next pieces of `src` and `dst`, at most `most` bytes long, or `None` at the end. With
    /// `both`, each segment of `dst` is a separate destination.
    pub(super) fn pieces(
        &mut self,
        src: &[Segment],
        dst: &[Segment],
        both: bool,
        most: usize,
    ) -> Option<[Segment; 2]> {
        let mut to = dst.get(self.dst)?;
        if self.used[1] == to.len {
            (self.dst, self.used[1]) = (self.dst + 1, 0);
            to = dst.get(self.dst)?;
            if both {
                (self.src, self.used[0], self.offset) = (0, 0, 0);
            }
        }
        let mut from = src.get(self.src)?;
        if self.used[0] == from.len {
            (self.src, self.used[0]) = (self.src + 1, 0);
            from = src.get(self.src)?;
        }
        let len = (from.len - self.used[0]).min(to.len - self.used[1]).min(most);
        let part = |of: &Segment, at: usize| Segment { addr: of.addr.offset(at), len, ..*of };
        Some([part(from, self.used[0]), part(to, self.used[1])])
    }

    /// Advances past pieces of `len` bytes.
    pub(super) fn advance(&mut self, len: usize) {
        self.used[0] += len;
        self.used[1] += len;
        self.offset += len;
    }

    /// Returns the offset from the start of the destination.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use dma_core::{DeviceAddr, RegionKey};

    use super::*;

    fn segments(list: &[(u64, usize)]) -> Vec<Segment> {
        list.iter().map(|&(addr, len)| Segment { key: RegionKey(1), addr: DeviceAddr(addr), len }).collect()
    }

    /// Returns offset, source, destination and length of each pair of pieces.
    fn walk(src: &[(u64, usize)], dst: &[(u64, usize)], both: bool) -> Vec<(usize, u64, u64, usize)> {
        let (src, dst, mut cursor, mut found) = (segments(src), segments(dst), Cursor::default(), Vec::new());
        while let Some([from, to]) = cursor.pieces(&src, &dst, both, 10) {
            assert_eq!(from.len, to.len);
            found.push((cursor.offset(), from.addr.0, to.addr.0, to.len));
            cursor.advance(to.len);
        }
        found
    }

    #[test]
    fn each_byte_of_a_destination_is_visited_once() {
        assert_eq!(
            walk(&[(100, 25)], &[(500, 25)], false),
            [(0, 100, 500, 10), (10, 110, 510, 10), (20, 120, 520, 5)]
        );
        assert_eq!(
            walk(&[(100, 4), (200, 8)], &[(500, 6), (600, 6)], false),
            [(0, 100, 500, 4), (4, 200, 504, 2), (6, 202, 600, 6)]
        );
        assert_eq!(walk(&[(100, 5)], &[(500, 5), (600, 5)], true), [(0, 100, 500, 5), (0, 100, 600, 5)]);
        assert_eq!(walk(&[], &[], false), []);
    }
}
