//! Faults of the whole device and of whole channels.

use std::fmt::Write as _;

use super::TimedEngine;
use crate::model::channel::{ChannelId, ChannelState, Stage};
use crate::model::fault::Fault;
use crate::model::resources::Resources;
use crate::model::task::{HaltCause, Status};
use crate::model::trace;

impl TimedEngine {
    /// Applies a rule that needs no task.
    pub(super) fn timed_fault(&mut self, resources: &mut Resources, rule: u32) {
        let Some(&rule) = self.timed.get(rule as usize) else { return };
        match rule.fault {
            Fault::Gone => return self.vanish(resources),
            Fault::Dead => return self.die(resources),
            _ => {}
        }
        for index in 0..self.channels.len() as u32 {
            if rule.channel.is_some_and(|only| only != index) {
                continue;
            }
            if self.channel(ChannelId(index)).is_some_and(|channel| channel.state == ChannelState::Running) {
                match rule.fault {
                    Fault::Reset => self.halt(resources, index, HaltCause::Reset),
                    _ => self.stick(resources, index),
                }
            }
        }
    }

    pub(super) fn vanish(&mut self, resources: &mut Resources) {
        self.gone = true;
        resources.record(None, |line| line.write_str("gone"));
        for index in 0..self.channels.len() as u32 {
            if self.channels[index as usize].is_some() {
                self.halt(resources, index, HaltCause::DeviceGone);
            }
        }
    }

    pub(super) fn die(&mut self, resources: &mut Resources) {
        (self.gone, self.dead) = (true, true);
        resources.record(None, |line| line.write_str("dead"));
        for index in 0..self.channels.len() as u32 {
            self.stick(resources, index);
        }
    }

    pub(super) fn stick(&mut self, resources: &mut Resources, index: u32) {
        self.leave_servers(index);
        if let Some(channel) = &mut self.channels[index as usize] {
            channel.stick();
            resources.record(Some(index), |line| line.write_str("stick"));
        }
    }

    /// Takes a channel down, and aborts its tasks in flight.
    pub(in crate::model::device) fn halt(&mut self, resources: &mut Resources, index: u32, cause: HaltCause) {
        self.leave_servers(index);
        let Some(channel) = &mut self.channels[index as usize] else { return };
        resources.record(Some(index), |line| write!(line, "halt cause={cause}"));
        channel.state = ChannelState::Halted(cause);
        for slot in channel.clear() {
            let task = &mut channel.tasks[slot as usize];
            if task.stage != Stage::Held {
                let (number, status) = (task.number, Status::Aborted(cause));
                (task.status, task.ended) = (status, resources.now);
                resources.memory.unpin(&task.src);
                resources.memory.unpin(&task.dst);
                channel.stats.aborted += 1;
                resources.record(Some(index), |line| trace::end(line, number, status));
            }
            channel.push_report(slot);
        }
    }
}
