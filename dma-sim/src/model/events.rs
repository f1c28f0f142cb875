//! The calendar of future events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Time;

/// A future event of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeviceEvent {
    /// A channel becomes able to start its next task.
    Issue { channel: u32, epoch: u32 },
    /// A server of the engine becomes free for the next task.
    ServerFree { place: u32 },
    /// Some bytes of a running task move.
    Move { channel: u32, epoch: u32, slot: u32 },
    /// A task ends.
    Finish { channel: u32, epoch: u32, slot: u32 },
    /// The time of a rule of the fault plan is reached.
    Fault { rule: u32 },
}

/// Events, sorted by time. Simultaneous events are in the order of their addition.
#[derive(Clone, Debug, Default)]
pub(super) struct Calendar {
    /// The time and the order of addition form one number, because comparing one number is faster
    /// than comparing two.
    heap: BinaryHeap<Reverse<(u128, DeviceEvent)>>,
    added: u64,
}

fn timed(Reverse((key, event)): Reverse<(u128, DeviceEvent)>) -> (Time, DeviceEvent) {
    (Time::from_ps((key >> 64) as u64), event)
}

impl Calendar {
    #[inline]
    pub(super) fn add(&mut self, at: Time, event: DeviceEvent) {
        self.added += 1;
        self.heap.push(Reverse((u128::from(at.as_ps()) << 64 | u128::from(self.added), event)));
    }

    /// Returns the earliest event and its time.
    #[inline]
    pub(super) fn first(&self) -> Option<(Time, DeviceEvent)> {
        self.heap.peek().copied().map(timed)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Time, DeviceEvent)> {
        self.heap.pop().map(timed)
    }

    /// Removes and returns the earliest event if its time is at most `to`.
    #[inline]
    pub(super) fn pop_due(&mut self, to: Time) -> Option<(Time, DeviceEvent)> {
        if self.first()?.0 <= to { self.pop() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_events_comes_out_sorted() {
        for count in 0..200_u64 {
            let mut calendar = Calendar::default();
            let times: Vec<_> = (0..count).map(|i| crate::model::rng::mix(i * 1_000 + count) % 50).collect();
            for (rule, at) in (0..).zip(&times) {
                calendar.add(Time::from_ps(*at), DeviceEvent::Fault { rule });
            }
            let out: Vec<_> = std::iter::from_fn(|| calendar.pop()).collect();
            let mut wanted: Vec<_> = (0..).zip(times).map(|(rule, at)| (at, rule)).collect();
            wanted.sort();
            let wanted: Vec<_> = wanted
                .into_iter()
                .map(|(at, rule)| (Time::from_ps(at), DeviceEvent::Fault { rule }))
                .collect();
            assert_eq!(out, wanted);
        }
    }

    #[test]
    fn earliest_first_and_ties_in_order_added() {
        let mut calendar = Calendar::default();
        for (at, rule) in [(5, 0), (3, 1), (5, 2), (3, 3), (1, 4)] {
            calendar.add(Time::from_ps(at), DeviceEvent::Fault { rule });
        }
        let order: Vec<_> = std::iter::from_fn(|| calendar.pop_due(Time::from_ps(3))).collect();
        assert_eq!(order.iter().map(|(t, _)| t.as_ps()).collect::<Vec<_>>(), [1, 3, 3]);
        assert_eq!(order[1].1, DeviceEvent::Fault { rule: 1 });
        assert_eq!(calendar.first().unwrap().1, DeviceEvent::Fault { rule: 0 });
    }
}
