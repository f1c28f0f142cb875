//! Events: records of streams, and waits for them.

use std::time::Instant;

use super::Driver;
use super::objects::{Records, Step, StreamEvent};
use crate::codes::{Code, Outcome, require};
use crate::shared_event::{EventHandle, SharedEvent};

/// Flag of events without a time.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// Flag of events of several processes.
pub(crate) const INTERPROCESS: u32 = 4;

impl Driver {
    pub(crate) fn create_event(&mut self, flags: u32) -> Outcome<u64> {
        self.current()?;
        let records = if flags & INTERPROCESS == 0 {
            Records::Own { wanted: 0, recorded: 0 }
        } else {
            Records::Shared(SharedEvent::new()?)
        };
        self.add_event(flags, records)
    }

    fn add_event(&mut self, flags: u32, records: Records) -> Outcome<u64> {
        let (context, _) = self.current()?;
        let handle = self.handle();
        let event = StreamEvent { context, flags, records, at: Instant::now(), destroyed: false };
        self.events.insert(handle, event);
        Ok(handle)
    }

    /// Returns the handle by which another process opens an event.
    pub(crate) fn event_handle(&self, event: u64) -> Outcome<EventHandle> {
        match &self.event(event)?.records {
            Records::Shared(shared) => Ok(shared.handle()),
            Records::Own { .. } => Err(Code::INVALID_HANDLE),
        }
    }

    /// Opens the event of another process.
    pub(crate) fn open_event(&mut self, handle: EventHandle) -> Outcome<u64> {
        self.current()?;
        let records = Records::Shared(SharedEvent::open(handle)?);
        self.add_event(INTERPROCESS | DISABLE_TIMING, records)
    }

    fn event(&self, handle: u64) -> Outcome<&StreamEvent> {
        let event = self.events.get(&handle).filter(|event| !event.destroyed).ok_or(Code::INVALID_HANDLE)?;
        match self.context(event.context)?.dead {
            None => Ok(event),
            Some(code) => Err(code),
        }
    }

    pub(crate) fn destroy_event(&mut self, handle: u64) -> Outcome {
        self.event(handle)?;
        if let Some(event) = self.events.get_mut(&handle) {
            event.destroyed = true;
            if event.records.are_over() {
                self.events.remove(&handle);
            }
        }
        Ok(())
    }

    /// Returns true if the last record of an event has happened.
    pub(crate) fn event_is_over(&mut self, handle: u64) -> Outcome<bool> {
        self.progress();
        let event = self.event(handle)?;
        Ok(event.records.are_over())
    }

    /// Returns the milliseconds between two events.
    pub(crate) fn elapsed(&mut self, from: u64, to: u64) -> Outcome<f32> {
        let over = [self.event_is_over(from)?, self.event_is_over(to)?];
        let (from, to) = (self.event(from)?, self.event(to)?);
        if (from.flags | to.flags) & DISABLE_TIMING != 0
            || from.records.wanted() == 0
            || to.records.wanted() == 0
        {
            return Err(Code::INVALID_HANDLE);
        }
        require(over == [true; 2], Code::NOT_READY)?;
        let (later, earlier) =
            (to.at.saturating_duration_since(from.at), from.at.saturating_duration_since(to.at));
        Ok((later.as_secs_f64() - earlier.as_secs_f64()) as f32 * 1e3)
    }

    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        self.event(event)?;
        let known = self.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)?;
        let number = known.records.request();
        self.queue(stream, Step::Record { event, number })
    }

    pub(crate) fn wait_event(&mut self, stream: u64, event: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        let number = self.event(event)?.records.wanted();
        self.queue(stream, Step::Wait { event, number })
    }
}
