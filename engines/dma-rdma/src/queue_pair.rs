//! A reliable queue pair: its creation, its connection to another queue pair or to itself, its reset and its
//! destruction.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::fmt;
use std::ptr;
use std::sync::Arc;

use dma_core::{ErrorKind, Result};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::device::Device;
use crate::error::{error, failed};
use crate::handle::{Handle, checked};
use crate::verbs::*;
use crate::wire::End;

/// Number of retries of a request without a response. The maximum is 7, but with 7 Soft-RoCE retries without
/// end.
const RETRIES: u8 = 6;
/// Maximum number of concurrent reads. Most devices support 16.
const READS: i32 = 16;
/// The default exponent of the timeout: 67 ms.
const TIMEOUT: u8 = 14;
/// Maximum number of routers between two hosts.
const HOPS: u8 = 64;

/// Fills an array with random bytes.
///
/// # Errors
///
/// `Os`: the system has no random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(n) if n == N => Ok(bytes),
        answer => Err(failed("the system has no random bytes", answer.err().unwrap_or(Errno::IO))),
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    device: Arc<Device>,
    /// `None` once the queue pair is destroyed.
    handle: Option<Handle<ibv_qp>>,
    post_send: ibv_post_send,
    is_connected: bool,
    /// Objects that the queue pair uses. These are leaked if the queue pair cannot be destroyed.
    keeps: Arc<dyn fmt::Debug + Send + Sync>,
}

impl QueuePair {
    /// Makes a queue pair for `depth` requests in flight.
    ///
    /// # Safety
    ///
    /// The domain and the completion queue belong to this device. Both live as long as the device and
    /// `keeps`.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        pd: Handle<ibv_pd>,
        cq: Handle<ibv_cq>,
        depth: u32,
        keeps: Arc<dyn fmt::Debug + Send + Sync>,
    ) -> Result<Self> {
        let cap = ibv_qp_cap {
            max_send_wr: depth,
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
        // SAFETY: the device is open, and its table of calls never changes.
        let post_send = unsafe { (*device.context.as_ptr()).ops.post_send }.ok_or_else(|| device.lacks())?;
        // SAFETY: `pd` and the completion queue in `attr` belong to this device, and `keeps` keeps them
        // alive.
        let handle = Handle::new(unsafe { (device.verbs.ibv_create_qp)(pd.as_ptr(), &raw mut attr) })
            .map_err(|errno| {
                failed(format!("the device cannot create a queue pair for {depth} requests"), errno)
            })?;
        Ok(Self { device: Arc::clone(device), handle: Some(handle), post_send, is_connected: false, keeps })
    }

    fn handle(&self) -> Result<Handle<ibv_qp>> {
        self.handle.ok_or_else(|| error(ErrorKind::DeviceLost, "the queue pair is gone"))
    }

    /// Returns true if the queue pair is connected, as far as this side knows.
    pub(crate) const fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Describes this end, with the number of the first packet that it sends.
    pub(crate) fn end(&self, psn: u32) -> Result<End> {
        let (handle, port) = (self.handle()?, &self.device.port);
        // SAFETY: the queue pair exists, and its number never changes.
        let number = unsafe { (*handle.as_ptr()).qp_num };
        Ok(End {
            number,
            psn: psn & 0xff_ffff,
            lid: port.attr.lid,
            mtu: port.mtu.clamp(1, 5) as u8,
            reads: self.device.attr.max_qp_rd_atom.clamp(1, READS) as u8,
            gid: port.gid.map_or([0; 16], |(_, gid)| gid.raw),
        })
    }

    /// Connects the queue pair to itself: moves it from RESET to RTS.
    pub(crate) fn connect_to_itself(&mut self) -> Result<()> {
        let end = self.end(0)?;
        self.connect(&end, &end, access::REMOTE_READ)
    }

    /// Connects `mine`, the end of this queue pair, to `peer`: moves it from RESET to RTS. The peer gets the
    /// rights `access`.
    pub(crate) fn connect(&mut self, mine: &End, peer: &End, access: i32) -> Result<()> {
        let (handle, port) = (self.handle()?, &self.device.port);
        let mut ah_attr = ibv_ah_attr {
            dlid: peer.lid,
            sl: self.device.options.service_level,
            port_num: port.number,
            ..ibv_ah_attr::default()
        };
        if let Some((sgid_index, _)) = port.gid {
            let hop_limit = if mine == peer { 1 } else { HOPS };
            ah_attr.is_global = 1;
            let dgid = ibv_gid { raw: peer.gid };
            ah_attr.grh = ibv_global_route { dgid, sgid_index, hop_limit, ..ibv_global_route::default() };
        }
        let sends = self.device.attr.max_qp_init_rd_atom.clamp(1, READS) as u8;
        let attr = ibv_qp_attr {
            path_mtu: mine.mtu.min(peer.mtu).into(),
            dest_qp_num: peer.number,
            rq_psn: peer.psn,
            sq_psn: mine.psn,
            qp_access_flags: access,
            ah_attr,
            max_rd_atomic: sends.min(peer.reads),
            max_dest_rd_atomic: mine.reads,
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
                if mine == peer { "connected to itself" } else { "connected" },
            ),
            (
                qp_state::RTS,
                m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::SQ_PSN | m::MAX_QP_RD_ATOMIC,
                "made to send",
            ),
        ] {
            self.modify(handle, ibv_qp_attr { qp_state, ..attr }, m::STATE | mask).map_err(|errno| {
                failed(format!("a queue pair of {} cannot be {step}", self.device.name), errno)
            })?;
        }
        self.is_connected = true;
        Ok(())
    }

    fn modify(&self, handle: Handle<ibv_qp>, mut attr: ibv_qp_attr, mask: i32) -> Result<(), Errno> {
        // SAFETY: the queue pair exists, and the attributes in the mask are set.
        checked(unsafe { (self.device.verbs.ibv_modify_qp)(handle.as_ptr(), &raw mut attr, mask) })
    }

    /// Makes the device drop all requests and stop accessing their memory. Returns true on success.
    pub(crate) fn quiesce(&mut self) -> bool {
        self.is_connected = false;
        let Some(handle) = self.handle else { return true };
        let reset = ibv_qp_attr { qp_state: qp_state::RESET, ..ibv_qp_attr::default() };
        self.modify(handle, reset, qp_mask::STATE).is_ok() || self.destroy()
    }

    /// Destroys the queue pair. Returns true on success.
    pub(crate) fn destroy(&mut self) -> bool {
        let Some(handle) = self.handle else { return true };
        // SAFETY: the queue pair exists, and is not used any more if the call succeeds.
        let destroyed = checked(unsafe { (self.device.verbs.ibv_destroy_qp)(handle.as_ptr()) }).is_ok();
        if destroyed {
            self.handle = None;
        }
        destroyed
    }

    /// Posts a chain of requests. The error contains the first request that was not accepted.
    ///
    /// # Safety
    ///
    /// The requests and their pieces are valid. Until the requests complete, the memory that they name may be
    /// read and written as they describe.
    #[inline]
    pub(crate) unsafe fn post(&self, first: *mut ibv_send_wr) -> Result<(), (Errno, *mut ibv_send_wr)> {
        let Some(handle) = self.handle else { return Err((Errno::NODEV, first)) };
        let mut bad = first;
        // SAFETY: the queue pair is open. The caller keeps the requests and their memory valid until they
        // complete.
        match unsafe { (self.post_send)(handle.as_ptr(), first, &raw mut bad) } {
            0 => Ok(()),
            code => Err((checked(code).err().unwrap_or(Errno::IO), bad)),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.destroy() {
            let device = self.device.name.clone();
            dma_core::deferred_log!(error, device, "a queue pair cannot be destroyed");
            std::mem::forget((Arc::clone(&self.device), Arc::clone(&self.keeps)));
        }
    }
}
