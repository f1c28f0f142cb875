//! [`Learner`]: which member takes a copy, by measured times.

#[cfg(test)]
mod tests;

/// A member of an [`AutoEngine`](super::AutoEngine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Cpu = 0,
    Device = 1,
}

/// Classes of lengths: powers of two, up to the longest descriptor.
pub(super) const LENGTHS: usize = 40;
/// Classes of descriptors in flight: 1; 2 to 7; 8 and more.
pub(super) const DEPTHS: usize = 3;
/// Descriptors of a partial run, in each class of descriptors in flight. Deep queues take longer to fill.
const PART: [u32; DEPTHS] = [4, 8, 32];
/// Partial runs of a run, of which the shortest counts: a disturbance only makes them longer.
const PARTS: usize = 3;
/// Growth of a cost by one run at most, because a disturbance may last longer than a run. More is believed if
/// copies before the run took as long.
const GROWTH: f32 = 1.25;
/// Partial runs, or nanoseconds if these are over before, of the first run on the CPU, and of copies in a
/// row that took longer before a new run. For lengths for which the CPU's engine tries other ways to copy at
/// first and now and then: hundreds of its copies are slow meanwhile.
const PERSISTENT: (usize, f32) = (48, 20e6);
/// Cost of a member, in parts of the other's, above which a run on it says no more, once it took so many
/// nanoseconds or lacks one part.
const PLAIN: f32 = 1.25;
const PLAIN_TIME: f32 = 4e6;
/// Most descriptors between two runs.
const MOST: u32 = 250_000;
/// Lengths from which the CPU's engine tries other ways to copy, as a power of two.
const LONG: u8 = 14;
/// Shorter copies of the CPU from one sample of them that is timed to the next.
const UNSEEN: u32 = 16_384;
/// Lengths of which each copy of the CPU is timed, as a power of two. Reading the clock twice takes 60 ns in
/// some virtual machines, and a copy of 64 KiB 570 ns.
const LONGEST: u8 = 20;
/// A run of the dearer member may cost one part in so many of the time, and four times as much for each of
/// the first runs, of which there are so many.
const SHARE: f32 = 200.0;
const AGREED: u32 = 3;

/// A class of copies: in flight and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    depth: u8,
    len: u8,
}

impl Class {
    #[inline]
    pub(super) const fn new(in_flight: usize, len: usize) -> Self {
        let depth = match in_flight {
            0..=1 => 0,
            2..=7 => 1,
            _ => 2,
        };
        let log = usize::BITS - 1 - (len | 1).leading_zeros();
        Self { depth, len: if log < LENGTHS as u32 { log as u8 } else { LENGTHS as u8 - 1 } }
    }

    /// Returns its fewest and most descriptors in flight.
    pub(super) const fn in_flight(self) -> (usize, usize) {
        match self.depth {
            0 => (0, 1),
            1 => (2, 7),
            _ => (8, usize::MAX),
        }
    }

    /// Returns its least length in bytes. Another class, or the end of all lengths, begins at twice of it.
    pub(super) const fn least(self) -> usize {
        1 << self.len
    }

    /// Returns the copies of the CPU from one sample of them to the next, and those of a sample.
    fn sampling(self) -> (u32, u32) {
        let sample = PART[self.depth as usize] * PARTS as u32;
        match self.len {
            ..LONG => (UNSEEN, sample),
            len => (sample << LONGEST.saturating_sub(len), sample),
        }
    }

    /// The place in a table of all classes.
    pub(super) const fn index(self) -> usize {
        self.depth as usize * LENGTHS + self.len as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// All copies of the class go to this member, to be timed.
    Run(Member),
    /// They go to the cheaper one.
    Settled(Member),
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    phase: Phase,
    /// Descriptors until the next run.
    left: u32,
    /// Runs on both members since a change of the costs was seen.
    agreed: u32,
    /// Descriptors of the CPU since the last sample was begun, and those of a sample that are left.
    unseen: u32,
    sample: u32,
    /// Nanoseconds of a descriptor, of each member; 0 until measured.
    cost: [f32; 2],
    /// The same, as seen before the run that it caused; else 0.
    seen: [f32; 2],
    /// The partial run: nanoseconds and descriptors.
    part: (f32, u32),
    /// Partial runs before it: their number, nanoseconds in all, and the shortest ones' for a descriptor.
    done: usize,
    time: f32,
    shortest: f32,
}

/// Which member takes a copy. Each class of copies has a run on each member; then the cheaper one takes them,
/// until the next runs.
#[derive(Debug)]
pub(super) struct Learner {
    cells: Box<[Cell]>,
}

impl Learner {
    pub(super) fn new() -> Self {
        let cell = Cell {
            phase: Phase::Run(Member::Cpu),
            left: 0,
            agreed: 0,
            unseen: 0,
            sample: 0,
            cost: [0.0; 2],
            seen: [0.0; 2],
            part: (0.0, 0),
            done: 0,
            time: 0.0,
            shortest: f32::INFINITY,
        };
        Self { cells: vec![cell; DEPTHS * LENGTHS].into_boxed_slice() }
    }

    /// Returns the member for a copy, and true if the CPU's is to be timed. All of the device's are.
    #[inline]
    pub(super) fn choose(&mut self, class: Class) -> (Member, bool) {
        let cell = &mut self.cells[class.index()];
        match cell.phase {
            Phase::Settled(member) if cell.left > 0 => {
                cell.left -= 1;
                (member, member == Member::Cpu && cell.samples(class))
            }
            Phase::Settled(_) => {
                cell.begin(Member::Cpu);
                (Member::Cpu, true)
            }
            Phase::Run(member) => (member, true),
        }
    }

    /// Takes up to `most` copies in advance that go to the CPU without a question.
    #[inline]
    pub(super) fn take_credit(&mut self, class: Class, most: u32) -> u32 {
        let cell = &mut self.cells[class.index()];
        if cell.phase != Phase::Settled(Member::Cpu) || cell.sample > 0 || cell.slows_down(class) {
            return 0;
        }
        let credit = cell.left.min(most).min(class.sampling().0.saturating_sub(cell.unseen + 1));
        cell.left -= credit;
        cell.unseen = cell.unseen.saturating_add(credit);
        credit
    }

    /// Gives back what is left of a credit.
    pub(super) fn give_credit(&mut self, class: Class, credit: u32) {
        let cell = &mut self.cells[class.index()];
        cell.left = cell.left.saturating_add(credit).min(MOST);
    }

    /// Returns the nanoseconds that were noted in a run that is not over.
    #[cfg(test)]
    pub(super) fn timed(&self, class: Class) -> f32 {
        let cell = &self.cells[class.index()];
        cell.time + cell.part.0
    }

    /// Notes that one copy took `nanos`. Returns the costs of both members if the run that
    /// measured them ended by it.
    pub(super) fn record(&mut self, class: Class, member: Member, nanos: f32) -> Option<[f32; 2]> {
        let cell = &mut self.cells[class.index()];
        let (Phase::Run(timed) | Phase::Settled(timed)) = cell.phase;
        if timed != member {
            return None;
        }
        cell.part.0 += nanos;
        cell.part.1 += 1;
        let length = PART[class.depth as usize];
        if cell.part.1 < length {
            return None;
        }
        let took = cell.part.0 / length as f32;
        (cell.shortest, cell.done) = (cell.shortest.min(took), cell.done + 1);
        cell.time += std::mem::take(&mut cell.part).0;
        match cell.phase {
            Phase::Run(member) => cell.end_part(class, member),
            Phase::Settled(member) => {
                cell.watch(class, member, took);
                None
            }
        }
    }

    /// Forgets what is known of the device: it went away.
    pub(super) fn forget_device(&mut self) {
        for cell in &mut self.cells {
            (cell.cost[Member::Device as usize], cell.agreed) = (0.0, 0);
            cell.begin(Member::Cpu);
        }
    }
}

impl Cell {
    /// Returns whether a copy of the CPU is to be timed, while the CPU has all of them: what it costs changes
    /// when the memory is no longer in the cache.
    fn samples(&mut self, class: Class) -> bool {
        let (next, sample) = class.sampling();
        self.unseen += 1;
        if self.unseen >= next {
            (self.unseen, self.sample) = (0, sample);
        }
        let sampled = self.sample > 0;
        self.sample -= u32::from(sampled);
        sampled || self.slows_down(class)
    }

    /// Returns whether the last partial run took longer. It may be the first of many, so that each copy is
    /// timed until one does not.
    fn slows_down(&self, class: Class) -> bool {
        class.len >= LONG && self.done > 0
    }

    fn begin(&mut self, member: Member) {
        self.phase = Phase::Run(member);
        self.restart();
    }

    /// Counts partial runs anew.
    fn restart(&mut self) {
        (self.part, self.done, self.time, self.shortest) = ((0.0, 0), 0, 0.0, f32::INFINITY);
    }

    /// Returns whether there are partial runs enough for a run, or for a long one.
    fn is_complete(&self, class: Class, long: bool) -> bool {
        let (parts, time) = PERSISTENT;
        self.done >= PARTS && (!long || class.len < LONG || self.done >= parts || self.time >= time)
    }

    /// Ends a part of a run. Returns both costs if the runs of both members ended by it.
    fn end_part(&mut self, class: Class, member: Member) -> Option<[f32; 2]> {
        let (own, rival) = (self.cost[member as usize], 1 - member as usize);
        let other = self.cost[rival].max(self.seen[rival]);
        // It was dearer, and its first parts are so plainly that the others change nothing.
        let enough = self.done == PARTS - 1 || self.time >= PLAIN_TIME;
        let plain = enough && own > other && other > 0.0 && self.shortest > PLAIN * other;
        let first = own == 0.0;
        if !plain && !self.is_complete(class, first && member == Member::Cpu) {
            return None;
        }
        let seen = std::mem::take(&mut self.seen[member as usize]);
        let most = if first { f32::INFINITY } else { (own * GROWTH).max(seen) };
        self.cost[member as usize] = self.shortest.min(most);
        if member == Member::Cpu && !plain {
            self.begin(Member::Device);
            return None;
        }
        Some(self.settle(class))
    }

    /// Begins runs if the member that has all copies became dearer than the other one was.
    fn watch(&mut self, class: Class, member: Member, took: f32) {
        if took <= 1.1 * self.cost[0].max(self.cost[1]) {
            self.restart();
        } else if self.is_complete(class, true) {
            (self.seen[member as usize], self.agreed) = (self.shortest, 0);
            self.begin(Member::Cpu);
        }
    }

    fn settle(&mut self, class: Class) -> [f32; 2] {
        let [cpu, device] = self.cost;
        let choice = if device < cpu { Member::Device } else { Member::Cpu };
        let (cheap, dear) = (cpu.min(device).max(1.0), cpu.max(device).max(1.0));
        let run = PART[class.depth as usize] * PARTS as u32;
        let apart = SHARE * run as f32 * (dear / cheap - 1.0);
        // A run may have been disturbed: the first ones are soon followed by the next.
        let part = 4_f32.powi(self.agreed.min(AGREED) as i32 - AGREED as i32);
        self.left = (apart * part).min(MOST as f32).max((16 * run) as f32) as u32;
        self.agreed += 1;
        self.begin(choice);
        (self.phase, self.seen) = (Phase::Settled(choice), [0.0; 2]);
        self.cost
    }
}
