//! The work requests of a queue, in a ring. Each request is linked to the next.
#![expect(unsafe_code, reason = "links requests by pointers")]

use std::ptr::{self, NonNull};

use crate::verbs::{WR_RDMA_READ, ibv_send_wr, ibv_sge};

/// A work request and the piece of memory that it names.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct WorkRequest {
    pub(crate) wr: ibv_send_wr,
    pub(crate) sge: ibv_sge,
}

impl WorkRequest {
    /// Makes an empty read.
    pub(crate) const fn read() -> Self {
        Self {
            wr: ibv_send_wr {
                wr_id: 0,
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: 1,
                opcode: WR_RDMA_READ,
                send_flags: 0,
                imm_data: 0,
                remote_addr: 0,
                rkey: 0,
                others: [0; 9],
            },
            sge: ibv_sge { addr: 0, length: 0, lkey: 0 },
        }
    }
}

/// A ring of requests, each linked to the next.
#[derive(Debug)]
pub(crate) struct RequestRing {
    base: NonNull<WorkRequest>,
    /// Number of requests, a power of two.
    pub(crate) len: usize,
}

// SAFETY: this value owns the memory.
unsafe impl Send for RequestRing {}

impl RequestRing {
    pub(crate) fn new(len: usize) -> Self {
        let requests: Box<[WorkRequest]> = (0..len).map(|_| WorkRequest::read()).collect();
        let base = NonNull::from(Box::leak(requests)).cast::<WorkRequest>();
        let ring = Self { base, len };
        for n in 0..len as u64 {
            let (next, request) = (ring.at(n + 1), ring.at(n));
            // SAFETY: the request is within this ring.
            let sge = unsafe { &raw mut (*request).sge };
            // SAFETY: the request is within this ring, and no other reference to it exists yet.
            let wr = unsafe { &mut (*request).wr };
            wr.sg_list = sge;
            wr.next = next.cast();
        }
        ring
    }

    /// Returns a pointer to a request. The first field of a request is the work request.
    #[inline]
    pub(crate) fn at(&self, number: u64) -> *mut WorkRequest {
        let at = number as usize & (self.len - 1);
        // SAFETY: the index lies within the ring.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl RequestRing {
    /// Returns up to `most` requests from `number` on, at most up to the end of the ring.
    ///
    /// # Safety
    ///
    /// None of the requests is in flight or borrowed.
    #[inline]
    pub(crate) unsafe fn side_by_side(&mut self, number: u64, most: usize) -> &mut [WorkRequest] {
        let len = most.min(self.len - (number as usize & (self.len - 1)));
        // SAFETY: the requests lie within the ring, and the caller guarantees that none is in flight or
        // borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.at(number), len) }
    }
}

impl Drop for RequestRing {
    fn drop(&mut self) {
        let requests = ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.len);
        // SAFETY: the memory comes from a box of this length, and providers copy requests before `post`
        // returns.
        drop(unsafe { Box::from_raw(requests) });
    }
}
