//! [`Regions`]: the region numbers in a trace.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_core::{Place, RegionInfo, Segment};
use dma_process::lock;

/// A region that is currently registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedRegion {
    key: usize,
    addr: u64,
    len: u64,
    number: u32,
}

impl TracedRegion {
    #[inline]
    fn holds(&self, segment: &Segment) -> bool {
        self.offset(segment).is_some()
    }

    #[inline]
    fn offset(&self, segment: &Segment) -> Option<u64> {
        let offset = segment.addr.0.wrapping_sub(self.addr);
        (self.key == segment.key.0 && offset < self.len).then_some(offset)
    }
}

#[derive(Debug, Default)]
struct RegionNumbers {
    /// The registered regions, sorted by key.
    regions: Vec<TracedRegion>,
    /// For each number: true if a region has it now, the maximum length of its regions, and their place.
    numbers: Vec<(bool, u64, Place)>,
    /// The number of times that a maximum length grew.
    growths: u64,
}

/// All regions of an engine. A new region gets the first free number whose earlier regions were in the same
/// place.
#[derive(Debug, Default)]
pub(super) struct Regions {
    table: Mutex<RegionNumbers>,
    changes: AtomicU64,
}

impl Regions {
    pub(super) fn add(&self, info: &RegionInfo, place: Place) {
        let mut table = lock(&self.table);
        let RegionNumbers { regions, numbers, growths } = &mut *table;
        let free = numbers.iter().position(|(taken, _, of)| !taken && *of == place);
        let number = free.unwrap_or_else(|| {
            numbers.push((false, 0, place));
            numbers.len() - 1
        });
        let len = info.len as u64;
        *growths += u64::from(len > numbers[number].1);
        numbers[number] = (true, numbers[number].1.max(len), place);
        let region = TracedRegion { key: info.key.0, addr: info.addr.0, len, number: number as u32 };
        let at = regions.partition_point(|other| other.key < region.key);
        regions.insert(at, region);
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(super) fn remove(&self, info: &RegionInfo) {
        let mut table = lock(&self.table);
        let RegionNumbers { regions, numbers, .. } = &mut *table;
        if let Ok(at) = regions.binary_search_by_key(&info.key.0, |region| region.key) {
            numbers[regions.remove(at).number as usize].0 = false;
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that changes with [`lengths_and_places`](Self::lengths_and_places).
    pub(super) fn growths(&self) -> u64 {
        lock(&self.table).growths
    }

    /// Returns the maximum length of the regions with each number, and their place.
    pub(super) fn lengths_and_places(&self) -> (Vec<u64>, Vec<Place>) {
        let table = lock(&self.table);
        table.numbers.iter().map(|(_, len, place)| (*len, *place)).unzip()
    }
}

/// A queue's copy of the registered regions.
#[derive(Debug, Default)]
pub(super) struct Known {
    regions: Vec<TracedRegion>,
    changes: u64,
}

impl Known {
    /// Updates the copy if regions were opened or closed. Allocates only if there are more regions than ever
    /// before.
    #[inline]
    pub(super) fn update(&mut self, of: &Regions) -> bool {
        let changes = of.changes.load(Ordering::Acquire);
        changes != self.changes && {
            let table = lock(&of.table);
            self.regions.clone_from(&table.regions);
            self.changes = changes;
            true
        }
    }

    #[cold]
    fn find(&self, segment: &Segment) -> Option<TracedRegion> {
        let at = self.regions.binary_search_by_key(&segment.key.0, |region| region.key).ok()?;
        Some(self.regions[at])
    }
}

/// One side of a queue's operations: the region and the end of the last segment.
#[derive(Debug)]
pub(super) struct TracedSide {
    last: TracedRegion,
    /// The address after the last segment.
    next: u64,
}

/// A segment in a trace.
pub(super) struct Placed {
    pub(super) number: u32,
    /// True if the region is the same as the last segment's.
    pub(super) same: bool,
    /// End of the last segment.
    pub(super) end: u64,
    /// Start of this segment.
    pub(super) offset: u64,
}

impl Default for TracedSide {
    fn default() -> Self {
        Self { last: TracedRegion { key: 0, addr: 0, len: 0, number: 0 }, next: 0 }
    }
}

impl TracedSide {
    /// Forgets the address of the region, because the region may have been dropped.
    pub(super) fn forget(&mut self) {
        self.last.len = 0;
    }

    /// Returns the distance of a segment from the end of the last one.
    #[inline]
    pub(super) const fn step(&self, segment: &Segment) -> u64 {
        segment.addr.0.wrapping_sub(self.next)
    }

    /// Returns the distance of a segment from the beginning of the last one, which has the same length.
    #[inline]
    pub(super) const fn stride(&self, segment: &Segment) -> u64 {
        self.step(segment).wrapping_add(segment.len as u64)
    }

    /// Returns the number of segments that fit into the last segment's region: the first is `first`, and each
    /// next one is `stride` bytes further.
    #[inline]
    pub(super) fn room(&self, first: &Segment, stride: u64) -> usize {
        let Some(offset) = self.last.offset(first) else { return 0 };
        let stride = stride.cast_signed();
        let bytes =
            if stride < 0 { offset } else { (self.last.len - offset).saturating_sub(first.len as u64) };
        bytes.checked_div(stride.unsigned_abs()).map_or(usize::MAX, |more| more as usize + 1)
    }

    /// Makes the last of `count` such segments the last segment.
    #[inline]
    pub(super) fn advance(&mut self, first: &Segment, stride: u64, count: usize) {
        let last = first.addr.0.wrapping_add(stride.wrapping_mul(count as u64 - 1));
        self.next = last.wrapping_add(first.len as u64);
    }

    /// Locates a segment, and makes it the last segment.
    #[inline]
    pub(super) fn place(&mut self, known: &Known, segment: &Segment) -> Placed {
        let end = self.next.wrapping_sub(self.last.addr);
        let mut same = true;
        if !self.last.holds(segment) {
            let before = self.last.number;
            // All regions are known: a descriptor that names another one breaks the contract.
            if let Some(region) = known.find(segment) {
                self.last = region;
            }
            same = self.last.number == before;
        }
        self.next = segment.addr.0.wrapping_add(segment.len as u64);
        let offset = segment.addr.0.wrapping_sub(self.last.addr);
        Placed { number: self.last.number, same, end, offset }
    }
}
