//! Injects faults into tasks and channels.

use std::fmt::Write as _;

use super::{ChannelId, Device};
use crate::model::channel::{ChannelState, Marks, Stage};
use crate::model::fault::{Fault, FaultRule};
use crate::model::rng;
use crate::model::task::{HaltCause, Status};
use crate::model::time::Time;
use crate::model::trace;

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) rule: FaultRule,
    pub(super) fired: bool,
}

impl Device {
    pub(super) fn timed_fault(&mut self, rule: u32) {
        let Some(Rule { rule, fired }) = self.rules.get_mut(rule as usize) else { return };
        *fired = true;
        let rule = *rule;
        if rule.fault == Fault::Gone {
            return self.vanish();
        }
        for index in 0..self.channels.len() as u32 {
            if rule.channel.is_some_and(|only| only != index) {
                continue;
            }
            if self.state(ChannelId(index)) == Some(ChannelState::Running) {
                match rule.fault {
                    Fault::Reset => self.halt(index, HaltCause::Reset),
                    _ => self.stick(index),
                }
            }
        }
    }

    pub(super) fn vanish(&mut self) {
        self.gone = true;
        self.trace.record(self.now, None, |line| line.write_str("gone"));
        for index in 0..self.channels.len() as u32 {
            if self.channels[index as usize].is_some() {
                self.halt(index, HaltCause::DeviceGone);
            }
        }
    }

    pub(super) fn stick(&mut self, index: u32) {
        self.leave_servers(index);
        if let Some(channel) = &mut self.channels[index as usize] {
            channel.stick();
            self.trace.record(self.now, Some(index), |line| line.write_str("stick"));
        }
    }

    /// Takes a channel down and aborts its tasks in flight.
    pub(super) fn halt(&mut self, index: u32, cause: HaltCause) {
        self.leave_servers(index);
        let Some(channel) = &mut self.channels[index as usize] else { return };
        self.trace.record(self.now, Some(index), |line| write!(line, "halt cause={cause}"));
        channel.state = ChannelState::Halted(cause);
        for slot in channel.clear() {
            let task = &mut channel.tasks[slot as usize];
            if task.stage != Stage::Held {
                let (number, status) = (task.number, Status::Aborted(cause));
                (task.status, task.ended) = (status, self.now);
                self.memory.unpin(&task.src);
                self.memory.unpin(&task.dst);
                channel.stats.aborted += 1;
                self.trace.record(self.now, Some(index), |line| trace::end(line, number, status));
            }
            channel.push_report(slot);
        }
    }
}

/// Returns the faults of task `number` of a channel, and its additional time.
#[cold]
pub(super) fn strike(
    rules: &mut [Rule],
    chances: &mut rng::Stream,
    channel: u32,
    number: u64,
    now: Time,
) -> (Marks, Time) {
    let (mut marks, mut slow) = (Marks::empty(), Time::ZERO);
    for Rule { rule, fired } in rules {
        if rule.channel.is_some_and(|only| only != channel) {
            continue;
        }
        let by_itself = matches!(rule.fault, Fault::Reset | Fault::Stick | Fault::Gone);
        let is_due = |at| !by_itself && at <= now && !std::mem::replace(fired, true);
        let meant = rule.when.means(number, is_due);
        if !meant || (rule.chance < 1.0 && !chances.chance(rule.chance)) {
            continue;
        }
        marks |= match rule.fault {
            Fault::Refuse => Marks::REFUSE,
            Fault::Fail => Marks::FAIL,
            Fault::Reset => Marks::RESET,
            Fault::Lose => Marks::LOSE,
            Fault::Stick => Marks::STICK,
            Fault::Gone => Marks::GONE,
            Fault::Corrupt => Marks::CORRUPT,
            Fault::Oversize => Marks::OVERSIZE,
            Fault::Slow(by) => {
                slow += by;
                Marks::empty()
            }
        };
    }
    (marks, slow)
}
