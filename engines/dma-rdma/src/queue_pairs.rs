//! The queue pairs of a queue: one is connected to itself, and the others are links to imports. Only one of
//! them is in use at a time. All of them share a completion queue and its channel.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::ffi::c_int;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use dma_core::{ErrorKind, Result};
use rustix::io::Errno;

use crate::device::{self, Device, Owned};
use crate::error::{error, failed};
use crate::handle::checked;
use crate::import::{Agreed, Connecting, Import};
use crate::queue_pair::{QueuePair, random};
use crate::verbs::*;
use crate::wire::End;

/// A completion queue, and the channel of its events if it has events.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) cq: Owned<ibv_cq>,
    channel: Option<Owned<ibv_comp_channel>>,
}

impl Completions {
    pub(crate) fn new(
        device: &Arc<Device>,
        entries: c_int,
        channel: Option<Owned<ibv_comp_channel>>,
    ) -> Result<Self> {
        let (context, events) =
            (device.context.as_ptr(), channel.as_ref().map_or(ptr::null_mut(), Owned::as_ptr));
        // SAFETY: the device is open, and the channel is NULL or belongs to it.
        let cq = unsafe { (device.verbs.ibv_create_cq)(context, entries, ptr::null_mut(), events, 0) };
        let destroy = device.verbs.ibv_destroy_cq;
        // SAFETY: the object was just made. Queue pairs, which use it, keep this value alive.
        let cq = unsafe { Owned::new(device, cq, destroy, "the device cannot create a completion queue") }?;
        Ok(Self { cq, channel })
    }
}

/// Queue pairs, with their completion queue and channel.
#[derive(Debug)]
pub(crate) struct QueuePairs {
    device: Arc<Device>,
    completions: Arc<Completions>,
    own: QueuePair,
    links: Vec<Link>,
    /// The index of the link in use. `None` if `own` is in use.
    active: Option<usize>,
    poll_cq: ibv_poll_cq,
    req_notify_cq: ibv_req_notify_cq,
}

/// A queue pair for an import.
#[derive(Debug)]
struct Link {
    import: Arc<Import>,
    pair: QueuePair,
    /// The end of this side while a connection is being made.
    end: Option<End>,
    /// The connection to the exporter, which keeps its queue pair as long as this connection is open.
    stream: Option<TcpStream>,
}

impl QueuePairs {
    /// Makes a queue pair for `depth` requests in flight, connected to itself.
    pub(crate) fn open(device: &Arc<Device>, depth: usize) -> Result<Self> {
        let verbs = &device.verbs;
        // SAFETY: the device is open, and its table of calls never changes.
        let ops = unsafe { (*device.context.as_ptr()).ops };
        let (Some(poll_cq), Some(req_notify_cq)) = (ops.poll_cq, ops.req_notify_cq) else {
            return Err(device.lacks());
        };
        // SAFETY: the device is open.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(device.context.as_ptr()) };
        let destroy = verbs.ibv_destroy_comp_channel;
        // SAFETY: the channel was just made, and the completion queue that uses it keeps it alive.
        let channel = unsafe {
            Owned::new(device, channel, destroy, "the device cannot create a completion channel for a queue")
        }?;
        // After a failure, each request makes a completion. A connection to a peer adds one for each chain.
        let entries = i32::try_from(2 * depth + 1).unwrap_or(i32::MAX).min(device.attr.max_cqe);
        let completions = Arc::new(Completions::new(device, entries, Some(channel))?);
        let (device, own) = (Arc::clone(device), new_pair(device, &completions, depth)?);
        let mut pair =
            Self { device, completions, own, links: Vec::new(), active: None, poll_cq, req_notify_cq };
        device::nonblocking(pair.fd())?;
        pair.own.connect_to_itself()?;
        Ok(pair)
    }

    /// Switches to the queue pair that connects to itself. Returns true if the queue pair is connected. No
    /// request may be in flight.
    pub(crate) fn use_own(&mut self) -> bool {
        self.active = None;
        self.own.is_connected()
    }

    /// Switches to the queue pair of an import. Makes the queue pair, for `depth` requests, if the queue pair
    /// does not exist. Returns true if the queue pair is connected. No request may be in flight. After an
    /// error, no link is in use.
    pub(crate) fn use_link(&mut self, import: &Arc<Import>, depth: usize) -> Result<bool> {
        let found = self.links.iter().position(|link| link.import.id == import.id);
        let at = match found {
            Some(at) => at,
            None => {
                self.active = None;
                self.links.retain(|link| !link.import.is_dropped());
                let pair = new_pair(&self.device, &self.completions, depth)?;
                self.links.push(Link { import: Arc::clone(import), pair, end: None, stream: None });
                self.links.len() - 1
            }
        };
        self.active = Some(at);
        Ok(self.links[at].pair.is_connected())
    }

    /// Begins to connect the link in use, which must not be connected.
    pub(crate) fn connect(&mut self) -> Result<Connecting> {
        let link = self.active.and_then(|at| self.links.get_mut(at));
        let link = link.ok_or_else(|| error(ErrorKind::DeviceLost, "there is no link to connect"))?;
        // Closing the old connection makes the exporter destroy its old queue pair.
        link.stream = None;
        let end = link.pair.end(u32::from_le_bytes(random()?))?;
        link.end = Some(end);
        link.import.connect(end)
    }

    /// Connects the link in use with the numbers that the exporter has sent. The exporter gets no rights.
    pub(crate) fn join(&mut self, agreed: Agreed) -> Result<()> {
        let link = self.active.and_then(|at| self.links.get_mut(at));
        let prepared = link.and_then(|link| link.end.take().map(|end| (link, end)));
        let (link, mine) =
            prepared.ok_or_else(|| error(ErrorKind::DeviceLost, "there is no link to connect"))?;
        link.pair.connect(&mine, &agreed.end, 0)?;
        link.stream = Some(agreed.stream);
        Ok(())
    }

    /// Makes the device drop all requests and stop accessing their memory. Returns true on success.
    pub(crate) fn quiesce(&mut self) -> bool {
        match self.active {
            None => self.own.quiesce(),
            Some(at) => self.links[at].pair.quiesce(),
        }
    }

    /// Connects the own queue pair to itself again after a failure. All requests must have ended.
    pub(crate) fn reconnect(&mut self) -> Result<()> {
        self.device.check()?;
        if !self.quiesce() {
            return Err(failed("a queue pair cannot be reset", Errno::IO));
        }
        self.own.connect_to_itself()
    }

    /// Connects the link in use to a queue pair that does not exist.
    #[cfg(test)]
    pub(crate) fn connect_to_nobody(&mut self) -> Result<()> {
        assert!(self.quiesce());
        let mine = self.own.end(0)?;
        self.own.connect(&mine, &End { number: 0xff_fff0, ..mine }, 0)
    }

    /// Posts a chain of requests. The error contains the first request that was not accepted.
    ///
    /// # Safety
    ///
    /// See [`QueuePair::post`].
    #[inline]
    pub(crate) unsafe fn post(&self, first: *mut ibv_send_wr) -> Result<(), (Errno, *mut ibv_send_wr)> {
        let pair = self.active.map_or(&self.own, |at| &self.links[at].pair);
        // SAFETY: the caller keeps the requests and their memory valid until they complete.
        unsafe { pair.post(first) }
    }

    /// Takes completions, and returns their number, or a negative number if the completion queue has failed.
    #[inline]
    pub(crate) fn poll(&self, completions: &mut [ibv_wc]) -> i32 {
        // SAFETY: the completion queue lives as long as this value, and the slice has room for that number.
        unsafe {
            (self.poll_cq)(self.completions.cq.as_ptr(), completions.len() as i32, completions.as_mut_ptr())
        }
    }

    /// Makes the next completion signal the channel.
    pub(crate) fn notify(&self) -> Result<()> {
        // SAFETY: the completion queue lives as long as this value.
        checked(unsafe { (self.req_notify_cq)(self.completions.cq.as_ptr(), 0) })
            .map_err(|errno| failed("the completion queue cannot be armed", errno))
    }

    fn channel(&self) -> *mut ibv_comp_channel {
        self.completions.channel.as_ref().expect("a queue has one").as_ptr()
    }

    /// Returns the channel's file.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value, and its file never changes.
        let fd = unsafe { (*self.channel()).fd };
        // SAFETY: the file is open as long as the channel, which outlives this borrow.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes the channel's events.
    pub(crate) fn clear(&self) {
        let verbs = &self.device.verbs;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let mut events = 0;
        // SAFETY: the channel lives as long as this value. The channel's file does not block, so the call
        // returns.
        while unsafe { (verbs.ibv_get_cq_event)(self.channel(), &raw mut cq, &raw mut context) } == 0 {
            events += 1;
        }
        if events > 0 {
            // SAFETY: `events` counts the events of this completion queue that were taken above.
            unsafe { (verbs.ibv_ack_cq_events)(self.completions.cq.as_ptr(), events) };
        }
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Destroys the queue pairs. Returns true if all of them were destroyed.
    pub(crate) fn close(&mut self) -> bool {
        let mut let_go = self.own.destroy();
        for link in &mut self.links {
            let_go &= link.pair.destroy();
        }
        let_go
    }
}

/// Makes a queue pair in the device's own domain, for `depth` requests in flight.
fn new_pair(device: &Arc<Device>, completions: &Arc<Completions>, depth: usize) -> Result<QueuePair> {
    let (cq, completions) = (completions.cq.handle(), Arc::clone(completions));
    // SAFETY: domain and completion queue belong to this device. The queue pair keeps both alive.
    unsafe { QueuePair::new(device, device.pd, cq, depth as u32, completions) }
}
