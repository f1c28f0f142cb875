//! Streams: their steps, and the progress of the steps.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::time::{Duration, Instant};

use dma_sim::model::Time;

use super::kernel_run::KernelMemory;
use super::objects::{Step, Stream};
use super::pieces::advance_moves;
use super::{CHANGED, Driver, Locked, PER_THREAD_STREAMS, wait};
use crate::codes::{Code, Outcome, require};
use crate::host_call::{HostCall, StreamValue, Until};

/// Default stream of a context: `CU_STREAM_LEGACY`. NULL means the same.
pub(super) const LEGACY: u64 = 1;
/// Default stream of a thread: `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;
/// Flag of streams that are not ordered with the default stream.
pub(crate) const NON_BLOCKING: u32 = 1;

/// A write of a value of 4 or 8 bytes, or a wait for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueOperation {
    pub(crate) addr: u64,
    pub(crate) value: u64,
    pub(crate) len: u64,
    /// `None` writes.
    pub(crate) until: Option<Until>,
}

impl Driver {
    pub(crate) fn create_stream(&mut self, flags: u32, priority: c_int) -> Outcome<u64> {
        let (context, device) = self.current()?;
        self.add_stream(context, device, flags, priority)
    }

    fn add_stream(&mut self, context: u64, device: usize, flags: u32, priority: c_int) -> Outcome<u64> {
        let channel = self.gpus[device].open_channel()?;
        let handle = self.handle();
        let stream = Stream {
            context,
            flags,
            priority,
            channel,
            steps: VecDeque::new(),
            queued: 0,
            done: 0,
            copies: 0,
            lag: Time::ZERO,
            destroyed: false,
        };
        self.streams.insert(handle, stream);
        Ok(handle)
    }

    /// Returns the stream of a handle from C. Also accepts the handles of the default streams.
    pub(crate) fn stream_of(&mut self, handle: u64) -> Outcome<u64> {
        match handle {
            0 | LEGACY => {
                let (context, device) = self.current()?;
                if let Some(legacy) = self.context(context)?.legacy {
                    return Ok(legacy);
                }
                let legacy = self.add_stream(context, device, 0, 0)?;
                self.context_mut(context)?.legacy = Some(legacy);
                Ok(legacy)
            }
            PER_THREAD => {
                let (context, device) = self.current()?;
                let known = PER_THREAD_STREAMS.with_borrow(|streams| streams.get(&context).copied());
                if let Some(known) = known.filter(|known| self.streams.contains_key(known)) {
                    return Ok(known);
                }
                let stream = self.add_stream(context, device, 0, 0)?;
                PER_THREAD_STREAMS.with_borrow_mut(|streams| streams.insert(context, stream));
                Ok(stream)
            }
            handle => {
                let stream = self.streams.get(&handle).filter(|stream| !stream.destroyed);
                let stream = stream.ok_or(Code::INVALID_HANDLE)?;
                match self.context(stream.context)?.dead {
                    None => Ok(handle),
                    Some(code) => Err(code),
                }
            }
        }
    }

    /// Returns a stream, if it exists.
    pub(crate) fn stream(&self, handle: u64) -> Outcome<&Stream> {
        self.streams.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn destroy_stream(&mut self, handle: u64) -> Outcome {
        let stream = self.streams.get_mut(&handle).filter(|stream| !stream.destroyed);
        let stream = stream.ok_or(Code::INVALID_HANDLE)?;
        stream.destroyed = true;
        // The stream still executes the steps that were queued.
        self.progress();
        Ok(())
    }

    pub(super) fn remove_stream(&mut self, handle: u64) {
        let Some(stream) = self.streams.remove(&handle) else { return };
        if let Ok(context) = self.context(stream.context) {
            let device = context.device;
            self.gpus[device].close_channel(stream.channel);
        }
    }

    /// Adds a step to a stream.
    pub(super) fn queue(&mut self, handle: u64, step: Step) -> Outcome {
        let Stream { context, flags, .. } = *self.stream(handle)?;
        if flags & NON_BLOCKING == 0 {
            self.join_default_stream(handle, context)?;
        }
        let stream = self.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
        stream.queued += 1;
        stream.steps.push_back(step);
        // If this is the only step of the stream, it may be executed now.
        self.progress();
        self.start_thread();
        Ok(())
    }

    /// Makes a stream wait before its next step: the default stream for all blocking streams of its context,
    /// and any other stream for the default stream.
    fn join_default_stream(&mut self, handle: u64, context: u64) -> Outcome {
        let legacy = self.context(context)?.legacy;
        let behind: Vec<_> = if legacy == Some(handle) {
            let blocking = |stream: &Stream| stream.context == context && stream.flags & NON_BLOCKING == 0;
            let others = self.streams.iter().filter(|(other, stream)| **other != handle && blocking(stream));
            others.filter(|(_, s)| s.done < s.queued).map(|(other, s)| (*other, s.queued)).collect()
        } else {
            let legacy = legacy.and_then(|legacy| Some((legacy, self.streams.get(&legacy)?.queued)));
            legacy.filter(|(legacy, queued)| self.streams[legacy].done < *queued).into_iter().collect()
        };
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.queued += behind.len() as u64;
            stream.steps.extend(behind.into_iter().map(|(stream, steps)| Step::Behind { stream, steps }));
        }
        Ok(())
    }

    /// Queues the end of an allocation.
    pub(crate) fn free_in_order(&mut self, addr: u64, stream: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        let id = self.memory.begin_free(addr, stream)?;
        self.queue(stream, Step::Free { addr, id })
    }

    /// Queues writes of values and waits for values, in their order, or none of them if one is invalid.
    pub(crate) fn values(&mut self, stream: u64, operations: &[ValueOperation]) -> Outcome {
        let stream = self.stream_of(stream)?;
        let step = |operation: &ValueOperation| {
            let ValueOperation { addr, value, len, until } = *operation;
            let value = self.stream_value(addr, value, len)?;
            Ok(until.map_or(Step::WriteValue(value), |until| Step::WaitValue { value, until }))
        };
        let steps = operations.iter().map(step).collect::<Outcome<Vec<_>>>()?;
        steps.into_iter().try_for_each(|step| self.queue(stream, step))
    }

    fn stream_value(&self, addr: u64, value: u64, len: u64) -> Outcome<StreamValue> {
        require(addr.is_multiple_of(len), Code::INVALID_VALUE)?;
        Ok(StreamValue { bytes: self.writable(addr, len)?.bytes(addr), value, len })
    }

    pub(crate) fn call_host(&mut self, stream: u64, call: HostCall) -> Outcome {
        let stream = self.stream_of(stream)?;
        self.queue(stream, Step::Call(call))
    }

    pub(super) fn advance_streams(&mut self) -> bool {
        let busy: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, s)| !s.steps.is_empty() || s.destroyed)
            .map(|(h, _)| *h)
            .collect();
        let mut moved = false;
        for handle in busy {
            while self.advance_stream(handle) {
                moved = true;
            }
        }
        moved
    }

    /// Continues a stream's first step as far as possible. Returns true if the step ended.
    fn advance_stream(&mut self, handle: u64) -> bool {
        let peers = self.peer_devices(handle);
        let Some(stream) = self.streams.get_mut(&handle) else { return false };
        let Some(context) = self.contexts.get_mut(&stream.context) else { return false };
        if context.dead.is_some() {
            return false;
        }
        let over = match stream.steps.front_mut() {
            None => {
                if stream.destroyed {
                    self.remove_stream(handle);
                }
                return false;
            }
            Some(Step::Move(moves)) => {
                match advance_moves(&mut self.gpus[context.device], stream.channel, moves) {
                    Ok(over) => over,
                    Err(code) => {
                        context.dead = Some(code);
                        CHANGED.notify_all();
                        return false;
                    }
                }
            }
            Some(Step::Launch(run)) => {
                let reach = KernelMemory { memory: &self.memory, device: context.device, peers: &peers };
                let clock = || Time::from_ns(self.began.elapsed().as_nanos() as u64);
                let gpu = &mut self.gpus[context.device];
                match run.advance(gpu, stream.channel, &reach, clock, &mut stream.lag) {
                    Ok(over) => over,
                    Err(code) => {
                        context.dead = Some(code);
                        CHANGED.notify_all();
                        return false;
                    }
                }
            }
            Some(Step::Strided { bytes, pitch, word, rows }) => {
                crate::host_call::fill_rows(*bytes, *pitch, *word, *rows);
                true
            }
            Some(Step::Free { addr, id }) => {
                self.memory.end_free(*addr, *id);
                true
            }
            Some(Step::WriteValue(value)) => {
                value.write();
                true
            }
            Some(Step::WaitValue { value, until }) => value.is(*until),
            Some(Step::Record { event, number }) => {
                let handle = *event;
                if let Some(event) = self.events.get_mut(&handle) {
                    event.records.record(*number);
                    event.at = Instant::now() - Duration::from_nanos(stream.lag.as_ps() / 1_000);
                    if event.destroyed && event.records.are_over() {
                        self.events.remove(&handle);
                    }
                }
                true
            }
            Some(Step::Wait { event, number }) => {
                self.events.get(event).is_none_or(|event| event.records.recorded() >= *number)
            }
            Some(Step::Behind { stream, steps }) => {
                let (stream, steps) = (*stream, *steps);
                self.streams.get(&stream).is_none_or(|stream| stream.done >= steps)
            }
            Some(Step::Call(_) | Step::Calling) => false,
        };
        if over && let Some(stream) = self.streams.get_mut(&handle) {
            stream.steps.pop_front();
            stream.done += 1;
        }
        over
    }

    /// Takes a host function that is the next step of its stream.
    pub(super) fn take_call(&mut self) -> Option<(u64, HostCall)> {
        let mut streams = self.streams.iter_mut();
        let (handle, stream) = streams.find(|(_, s)| matches!(s.steps.front(), Some(Step::Call(_))))?;
        let first = stream.steps.front_mut()?;
        match std::mem::replace(first, Step::Calling) {
            Step::Call(call) => Some((*handle, call)),
            _ => None,
        }
    }
}

/// Waits until a stream has executed the steps that are queued now.
pub(crate) fn wait_stream(mut driver: Locked, handle: u64) -> Outcome {
    let stream = driver.stream_of(handle)?;
    let Stream { queued, context, .. } = *driver.stream(stream)?;
    wait(driver, move |driver| {
        if let Some(code) = driver.context(context)?.dead {
            return Err(code);
        }
        Ok(driver.streams.get(&stream).is_none_or(|stream| stream.done >= queued))
    })
}

/// Returns true if a stream has no steps left.
pub(crate) fn stream_is_idle(driver: &mut Driver, handle: u64) -> Outcome<bool> {
    driver.progress();
    let stream = driver.stream_of(handle)?;
    Ok(driver.stream(stream)?.steps.is_empty())
}
