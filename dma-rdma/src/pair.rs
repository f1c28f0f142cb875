//! A reliable queue pair that is connected to itself, with its completion queue and channel.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use dma_core::{ErrorKind, Result};
use rustix::io::Errno;

use crate::device::{self, Device, Handle, checked};
use crate::error::{error, failed};
use crate::verbs::*;

/// Repetitions of a request without an answer. The most would be 7, with which Soft-RoCE never gives up.
const RETRIES: u8 = 6;
/// Reads in progress at once; 16 is what devices commonly take.
const READS: i32 = 16;
/// The default exponent of the timeout: 67 ms.
const TIMEOUT: u8 = 14;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    device: Arc<Device>,
    channel: Handle<ibv_comp_channel>,
    cq: Handle<ibv_cq>,
    /// `None` once it is destroyed.
    qp: Option<Handle<ibv_qp>>,
    poll_cq: ibv_poll_cq,
    req_notify_cq: ibv_req_notify_cq,
    post_send: ibv_post_send,
}

impl Pair {
    /// Makes and connects a queue pair for `depth` requests in flight.
    pub(crate) fn open(device: &Arc<Device>, depth: usize) -> Result<Self> {
        let verbs = &device.verbs;
        // SAFETY: an open device, whose calls are constant.
        let ops = unsafe { (*device.context.as_ptr()).ops };
        let (Some(poll_cq), Some(req_notify_cq), Some(post_send)) =
            (ops.poll_cq, ops.req_notify_cq, ops.post_send)
        else {
            return Err(error(ErrorKind::MissingSdk, format!("the provider of {} lacks calls", device.name))
                .with_hint("install the providers of the same release as libibverbs: `apt install ibverbs-providers`"));
        };
        // SAFETY: an open device.
        let channel = Handle::new(unsafe { (verbs.ibv_create_comp_channel)(device.context.as_ptr()) })
            .map_err(|errno| failed("no completion channel for a queue", errno))?;
        let undo_channel = || {
            // SAFETY: just made, and nothing uses it.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
        };
        // Each request makes a completion after a failure.
        let entries = i32::try_from(depth + 1).unwrap_or(i32::MAX);
        let context = device.context.as_ptr();
        // SAFETY: an open device, and a channel of it.
        let cq = unsafe { (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), channel.as_ptr(), 0) };
        let cq = Handle::new(cq)
            .map_err(|errno| failed(format!("no completion queue of {entries} entries"), errno))
            .inspect_err(|_| undo_channel())?;
        let cap = ibv_qp_cap {
            max_send_wr: depth as u32,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let (send_cq, recv_cq) = (cq.as_ptr(), cq.as_ptr());
        let mut attr = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq,
            recv_cq,
            srq: ptr::null_mut(),
            cap,
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: a domain and a completion queue of one device.
        let qp = Handle::new(unsafe { (verbs.ibv_create_qp)(device.pd.as_ptr(), &raw mut attr) })
            .map_err(|errno| failed(format!("no queue pair for {depth} requests"), errno))
            .inspect_err(|_| {
                // SAFETY: just made, and nothing uses it.
                unsafe { (verbs.ibv_destroy_cq)(cq.as_ptr()) };
                undo_channel();
            })?;
        // From here on, the drop undoes.
        let pair =
            Self { device: Arc::clone(device), channel, cq, qp: Some(qp), poll_cq, req_notify_cq, post_send };
        device::nonblocking(pair.fd())?;
        pair.connect()?;
        Ok(pair)
    }

    /// Brings the queue pair from RESET to where it sends, with itself as its peer.
    fn connect(&self) -> Result<()> {
        let Some(qp) = self.qp else {
            return Err(error(ErrorKind::DeviceLost, "the queue pair is gone"));
        };
        // SAFETY: a queue pair, whose number is constant.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        self.connect_to(qp, number)
    }

    fn connect_to(&self, qp: Handle<ibv_qp>, number: u32) -> Result<()> {
        let port = &self.device.port;
        let most = |of_device: i32| of_device.clamp(1, READS) as u8;
        let mut ah_attr = ibv_ah_attr {
            dlid: port.attr.lid,
            sl: self.device.options.service_level,
            port_num: port.number,
            ..ibv_ah_attr::default()
        };
        if let Some((sgid_index, dgid)) = port.gid {
            ah_attr.is_global = 1;
            ah_attr.grh = ibv_global_route { dgid, sgid_index, hop_limit: 1, ..ibv_global_route::default() };
        }
        let attr = ibv_qp_attr {
            path_mtu: port.mtu,
            dest_qp_num: number,
            qp_access_flags: access::REMOTE_READ,
            ah_attr,
            max_rd_atomic: most(self.device.attr.max_qp_init_rd_atom),
            max_dest_rd_atomic: most(self.device.attr.max_qp_rd_atom),
            min_rnr_timer: 12,
            port_num: port.number,
            timeout: self.device.options.timeout.unwrap_or(TIMEOUT),
            retry_cnt: RETRIES,
            rnr_retry: RETRIES,
            ..ibv_qp_attr::default()
        };
        // The attributes of each step: ibv_modify_qp(3), for RC.
        use qp_mask as m;
        for (qp_state, mask, step) in [
            (qp_state::INIT, m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS, "prepared"),
            (
                qp_state::RTR,
                m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN | m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER,
                "connected to itself",
            ),
            (
                qp_state::RTS,
                m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::SQ_PSN | m::MAX_QP_RD_ATOMIC,
                "made to send",
            ),
        ] {
            self.modify(qp, ibv_qp_attr { qp_state, ..attr }, m::STATE | mask).map_err(|errno| {
                failed(format!("a queue pair of {} cannot be {step}", self.device.name), errno)
            })?;
        }
        Ok(())
    }

    fn modify(&self, qp: Handle<ibv_qp>, mut attr: ibv_qp_attr, mask: i32) -> Result<(), Errno> {
        // SAFETY: this queue's pair, and attributes for the mask.
        checked(unsafe { (self.device.verbs.ibv_modify_qp)(qp.as_ptr(), &raw mut attr, mask) })
    }

    /// Makes the device drop all requests, and touch their memory no more. Returns whether it did.
    pub(crate) fn quiesce(&mut self) -> bool {
        let Some(qp) = self.qp else { return true };
        let reset = ibv_qp_attr { qp_state: qp_state::RESET, ..ibv_qp_attr::default() };
        if self.modify(qp, reset, qp_mask::STATE).is_ok() {
            return true;
        }
        // SAFETY: this queue's pair, which is not used any more if that succeeds.
        let destroyed = checked(unsafe { (self.device.verbs.ibv_destroy_qp)(qp.as_ptr()) }).is_ok();
        if destroyed {
            self.qp = None;
        }
        destroyed
    }

    /// Connects again after a failure. All requests have ended.
    pub(crate) fn reconnect(&mut self) -> Result<()> {
        self.device.check()?;
        if !self.quiesce() {
            return Err(failed("a queue pair cannot be reset", Errno::IO));
        }
        self.connect()
    }

    /// Connects to a queue pair that is not there.
    #[cfg(test)]
    pub(crate) fn connect_to_nobody(&mut self) -> Result<()> {
        assert!(self.quiesce());
        self.qp.map_or(Ok(()), |qp| self.connect_to(qp, 0xff_fff0))
    }

    /// Posts a chain of requests. The error has the first one that was not taken.
    ///
    /// # Safety
    ///
    /// The requests and their pieces are valid; memory that they name may be read and written as they say
    /// until their completion.
    #[inline]
    pub(crate) unsafe fn post(&self, first: *mut ibv_send_wr) -> Result<(), (Errno, *mut ibv_send_wr)> {
        let Some(qp) = self.qp else { return Err((Errno::NODEV, first)) };
        let mut bad = first;
        // SAFETY: this queue's pair; the requests by the caller's promise.
        match unsafe { (self.post_send)(qp.as_ptr(), first, &raw mut bad) } {
            0 => Ok(()),
            code => Err((checked(code).err().unwrap_or(Errno::IO), bad)),
        }
    }

    /// Takes completions, and returns their number, or a negative number if the queue has failed.
    #[inline]
    pub(crate) fn poll(&self, completions: &mut [ibv_wc]) -> i32 {
        // SAFETY: this queue's completions, and room for them.
        unsafe { (self.poll_cq)(self.cq.as_ptr(), completions.len() as i32, completions.as_mut_ptr()) }
    }

    /// Makes the next completion signal the channel.
    pub(crate) fn notify(&self) -> Result<()> {
        // SAFETY: this queue's completions.
        checked(unsafe { (self.req_notify_cq)(self.cq.as_ptr(), 0) })
            .map_err(|errno| failed("the completion queue cannot be armed", errno))
    }

    /// The channel's file.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: this queue's channel, whose file is constant.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes the channel's events.
    pub(crate) fn clear(&self) {
        let verbs = &self.device.verbs;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let mut events = 0;
        // SAFETY: this queue's channel, whose file does not block.
        while unsafe { (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &raw mut cq, &raw mut context) } == 0 {
            events += 1;
        }
        if events > 0 {
            // SAFETY: as many events of this queue were taken.
            unsafe { (verbs.ibv_ack_cq_events)(self.cq.as_ptr(), events) };
        }
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let verbs = &self.device.verbs;
        if let Some(qp) = self.qp {
            // SAFETY: this queue's pair, which nothing uses any more.
            if checked(unsafe { (verbs.ibv_destroy_qp)(qp.as_ptr()) }).is_err() {
                tracing::error!(device = self.device.name, "a queue pair cannot be destroyed");
                // What it uses stays.
                std::mem::forget(Arc::clone(&self.device));
                return;
            }
        }
        // SAFETY: its pair is gone, and all events were acknowledged.
        unsafe { (verbs.ibv_destroy_cq)(self.cq.as_ptr()) };
        // SAFETY: its completion queue is gone.
        unsafe { (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}
