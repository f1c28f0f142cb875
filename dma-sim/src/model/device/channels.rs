//! Opens, inspects, stops, restarts and closes channels.

use std::fmt::Write as _;

use super::Device;
use crate::model::channel::{Channel, ChannelState, ChannelStats};
use crate::model::instant::Ring;
use crate::model::task::HaltCause;

/// Name of a channel of a [`Device`]. Names are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(super) u32);

impl ChannelId {
    /// Returns the channel's number: the channels opened before it.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// Error of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No open channel has this name.
    #[error("no such channel; it may have been closed")]
    NoSuchChannel,
    /// All channels are taken.
    #[error("all {max} channels of the device are open; close one")]
    NoneFree {
        /// Number of channels of the device.
        max: u32,
    },
    /// The depth is 0, or more than the device's.
    #[error("a queue of {requested} tasks; queues of this device hold 1 to {max}")]
    Depth {
        /// The requested depth.
        requested: u32,
        /// The largest depth.
        max: u32,
    },
    /// The channel has tasks whose completions were not polled.
    #[error("the channel still holds {tasks} tasks; stop it and poll their completions")]
    Busy {
        /// Number of tasks.
        tasks: u32,
    },
    /// The device is gone.
    #[error("the device is gone; open another")]
    DeviceGone,
}

impl Device {
    /// Opens a channel whose queue holds `depth` tasks.
    ///
    /// # Errors
    ///
    /// Returns an error if no channel is free, the depth is 0 or more than the profile's, or the device is
    /// gone.
    pub fn open_channel(&mut self, depth: u32) -> Result<ChannelId, ChannelError> {
        if self.gone {
            return Err(ChannelError::DeviceGone);
        }
        let max = self.profile.depth;
        if depth == 0 || depth > max {
            return Err(ChannelError::Depth { requested: depth, max });
        }
        let opened = self.rings.as_ref().map_or(self.channels.len(), Vec::len);
        if self.open == self.profile.channels || opened == u32::MAX as usize {
            return Err(ChannelError::NoneFree { max: self.profile.channels });
        }
        if let Some(rings) = &mut self.rings {
            rings.push(Some(Box::new(Ring::new(depth))));
            self.open += 1;
            return Ok(ChannelId(opened as u32));
        }
        let index = self.channels.len() as u32;
        let channel = Channel::new(&self.profile, depth, self.seed, index, self.now);
        self.channels.push(Some(Box::new(channel)));
        self.open += 1;
        self.trace.record(self.now, Some(index), |line| write!(line, "open depth={depth}"));
        Ok(ChannelId(index))
    }

    /// Closes a channel. With tasks in flight, [stop](Self::stop) it and poll first.
    ///
    /// # Errors
    ///
    /// There is no such channel, or it holds tasks.
    pub fn close_channel(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        let used = self.ring(id).map(Ring::used).or(self.channel(id).map(|channel| channel.used));
        match used.ok_or(ChannelError::NoSuchChannel)? {
            0 => {}
            tasks => return Err(ChannelError::Busy { tasks }),
        }
        self.open -= 1;
        if let Some(rings) = &mut self.rings {
            rings[id.0 as usize] = None;
            return Ok(());
        }
        self.channels[id.0 as usize] = None;
        self.trace.record(self.now, Some(id.0), |line| line.write_str("close"));
        Ok(())
    }

    /// Returns the state of a channel, if it exists.
    #[must_use]
    pub fn state(&self, id: ChannelId) -> Option<ChannelState> {
        self.ring(id).map(|ring| ring.state).or(self.channel(id).map(|channel| channel.state))
    }

    /// Returns the tasks of a channel, submitted and not polled. 0 if it does not exist.
    #[must_use]
    pub fn in_flight(&self, id: ChannelId) -> u32 {
        self.ring(id).map_or_else(|| self.channel(id).map_or(0, |channel| channel.used), Ring::used)
    }

    /// Returns the tasks of a channel that a doorbell released and that did not end. 0 if it does not exist.
    #[must_use]
    pub fn running(&self, id: ChannelId) -> u32 {
        self.channel(id).map_or(0, |channel| channel.outstanding)
    }

    /// Returns the counters of a channel, if it exists.
    #[must_use]
    pub fn stats(&self, id: ChannelId) -> Option<ChannelStats> {
        self.ring(id).map(|ring| ring.stats).or(self.channel(id).map(|channel| channel.stats))
    }

    /// Returns true if [`poll`](Self::poll) would return a completion.
    #[must_use]
    pub fn has_completion(&self, id: ChannelId) -> bool {
        match &self.rings {
            Some(_) => self.ring(id).is_some_and(Ring::has_reports),
            None => self.channel(id).is_some_and(Channel::has_reports),
        }
    }

    #[inline]
    pub(super) fn ring(&self, id: ChannelId) -> Option<&Ring> {
        self.rings.as_ref()?.get(id.0 as usize)?.as_deref()
    }

    pub(super) fn channel(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(id.0 as usize)?.as_deref()
    }

    /// Takes a channel down: everything in flight on it ends as aborted, to be polled, and it accepts no more
    /// until it is [restarted](Self::restart). No effect if it is down.
    ///
    /// # Errors
    ///
    /// There is no such channel.
    pub fn stop(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        match self.state(id) {
            None => Err(ChannelError::NoSuchChannel),
            Some(ChannelState::Halted(_)) => Ok(()),
            Some(ChannelState::Running) => {
                match &mut self.rings {
                    Some(rings) => {
                        if let Some(ring) = &mut rings[id.0 as usize] {
                            ring.halt(&mut self.memory, HaltCause::Stopped, self.now);
                        }
                    }
                    None => self.halt(id.0, HaltCause::Stopped),
                }
                Ok(())
            }
        }
    }

    /// Restarts a halted channel. Unpolled completions stay. No effect if it runs.
    ///
    /// # Errors
    ///
    /// There is no such channel, or the device is gone.
    pub fn restart(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        if let Some(rings) = &mut self.rings {
            let Some(Some(ring)) = rings.get_mut(id.0 as usize) else {
                return Err(ChannelError::NoSuchChannel);
            };
            ring.state = ChannelState::Running;
            return Ok(());
        }
        let Some(Some(channel)) = self.channels.get_mut(id.0 as usize) else {
            return Err(ChannelError::NoSuchChannel);
        };
        if self.gone {
            return Err(ChannelError::DeviceGone);
        }
        if channel.state != ChannelState::Running {
            channel.restart(self.now);
            self.trace.record(self.now, Some(id.0), |line| line.write_str("restart"));
        }
        Ok(())
    }

    /// [Stops](Self::stop) and [restarts](Self::restart) a channel.
    ///
    /// # Errors
    ///
    /// There is no such channel, or the device is gone.
    pub fn reset(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        self.stop(id)?;
        self.restart(id)
    }
}
