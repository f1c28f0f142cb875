//! [`Spares`]: reused lists of segments for jobs.

use dma_core::Segment;

/// Minimum capacity of a list. A copy of one range needs two segments.
const MIN_CAPACITY: usize = 4;
/// Number of classes, one per power of two: 4 to 2048 segments, the engine's limit for both sides. The last
/// class also holds longer lists.
const CLASSES: usize = 10;

/// Used lists, so that jobs allocate only when more are in flight than ever before.
///
/// Lists are kept by length, in powers of two. Otherwise a few long jobs would make short lists grow, until
/// every list had the capacity of the longest: 48 KiB for copies that need 48 bytes.
#[derive(Debug, Default)]
pub(super) struct Spares {
    classes: [Vec<Vec<Segment>>; CLASSES],
}

impl Spares {
    /// Allocates a list for `len` segments, unless one is kept. Returns false without memory.
    #[inline]
    pub(super) fn prepare(&mut self, len: usize) -> bool {
        let class = class_of(len);
        !self.classes[class].is_empty() || self.allocate(class, len)
    }

    #[cold]
    fn allocate(&mut self, class: usize, len: usize) -> bool {
        let (lists, mut list) = (&mut self.classes[class], Vec::new());
        let has_memory =
            lists.try_reserve(1).is_ok() && list.try_reserve_exact(len.max(MIN_CAPACITY << class)).is_ok();
        if has_memory {
            lists.push(list);
        }
        has_memory
    }

    /// Returns an empty list with room for `len` segments.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Vec<Segment> {
        let class = class_of(len);
        self.classes[class].pop().unwrap_or_else(|| Vec::with_capacity(len.max(MIN_CAPACITY << class)))
    }

    /// Keeps a list for reuse.
    #[inline]
    pub(super) fn give(&mut self, mut list: Vec<Segment>) {
        let class = class_of(list.len());
        list.clear();
        if self.classes[class].try_reserve(1).is_ok() {
            self.classes[class].push(list);
        }
    }
}

#[inline]
fn class_of(len: usize) -> usize {
    (len.div_ceil(MIN_CAPACITY).max(1).next_power_of_two().ilog2() as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {

    use dma_core::{DeviceAddr, RegionKey};

    use super::*;

    fn fill(list: &mut Vec<Segment>, len: usize) {
        let segment = Segment { key: RegionKey(1), addr: DeviceAddr(1), len: 1 };
        list.extend(std::iter::repeat_n(segment, len));
    }

    #[test]
    fn lists_have_room_and_not_much_more() {
        for (len, room) in
            [(1, 4), (2, 4), (4, 4), (5, 8), (8, 8), (9, 16), (1025, 2048), (2048, 2048), (5000, 5000)]
        {
            assert_eq!(Spares::default().take(len).capacity(), room, "{len}");
        }
    }

    /// A reused list always has room, whatever lists were used before.
    #[test]
    fn long_lists_are_for_long_jobs() {
        let mut spares = Spares::default();
        for wave in [&[2048_usize][..], &[2; 500], &[1, 5, 33, 2048], &[2; 500], &[1100, 40, 3]] {
            let mut lists: Vec<_> = wave.iter().map(|&len| (len, spares.take(len))).collect();
            for (len, list) in &mut lists {
                let room = list.capacity();
                assert!(
                    list.is_empty() && room >= *len && room < 2 * MIN_CAPACITY.max(*len),
                    "{len}: {room}"
                );
                fill(list, *len);
            }
            lists.into_iter().for_each(|(_, list)| spares.give(list));
        }
        assert_eq!(spares.classes[0].len(), 500, "used again");
    }
}
