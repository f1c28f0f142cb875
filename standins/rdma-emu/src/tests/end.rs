//! [`End`]: one end of a connection, as the tests use it.

use super::*;

/// A guard against a hang.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
pub(super) const RIGHTS: i32 =
    access::LOCAL_WRITE | access::REMOTE_READ | access::REMOTE_WRITE | access::REMOTE_ATOMIC;
pub(super) const KEY: u32 = 0x1234_5678;
pub(super) const SIZE: usize = 8192;

/// One end: a context with a queue pair, and a registered buffer.
pub(super) struct End {
    pub(super) nic: Nic,
    pub(super) verbs: Verbs,
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) channel: *mut ibv_comp_channel,
    pub(super) cq: *mut ibv_cq,
    pub(super) qp: *mut ibv_qp,
    pub(super) mr: *mut ibv_mr,
    pub(super) bytes: Box<[u64; SIZE / 8]>,
}

pub(super) fn networked() -> Nic {
    Nic::with(|state| state.is_networked = true)
}

impl End {
    pub(super) fn new(nic: &Nic) -> Self {
        Self::of_type(nic, QPT_RC)
    }

    pub(super) fn of_type(nic: &Nic, qp_type: c_int) -> Self {
        let mut end = Self::without_pair(nic);
        end.qp = end.pair(qp_type, ptr::null_mut(), 1);
        end
    }

    pub(super) fn without_pair(nic: &Nic) -> Self {
        let verbs = nic.verbs();
        let mut bytes = Box::new([0; SIZE / 8]);
        let list = c!((verbs.ibv_get_device_list)(ptr::null_mut()));
        let context = c!((verbs.ibv_open_device)(*list));
        c!((verbs.ibv_free_device_list)(list));
        let pd = c!((verbs.ibv_alloc_pd)(context));
        let channel = c!((verbs.ibv_create_comp_channel)(context));
        let cq = c!((verbs.ibv_create_cq)(context, 100, ptr::without_provenance_mut(77), channel, 0));
        let mr = c!((verbs.ibv_reg_mr)(pd, bytes.as_mut_ptr().cast(), SIZE, RIGHTS));
        assert!(!mr.is_null() && !cq.is_null());
        Self { nic: nic.clone(), verbs, context, pd, channel, cq, qp: ptr::null_mut(), mr, bytes }
    }

    pub(super) fn init(&self, qp_type: c_int, srq: *mut c_void, sq_sig_all: c_int) -> ibv_qp_init_attr {
        let cap = ibv_qp_cap {
            max_send_wr: 10,
            max_recv_wr: 10,
            max_send_sge: 3,
            max_recv_sge: 3,
            max_inline_data: 64,
        };
        let (send_cq, recv_cq) = (self.cq, self.cq);
        ibv_qp_init_attr { qp_context: ptr::null_mut(), send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
    }

    pub(super) fn pair(&self, qp_type: c_int, srq: *mut c_void, sq_sig_all: c_int) -> *mut ibv_qp {
        let mut init = self.init(qp_type, srq, sq_sig_all);
        let qp = c!((self.verbs.ibv_create_qp)(self.pd, &raw mut init));
        assert!(!qp.is_null());
        qp
    }

    pub(super) fn number(&self) -> u32 {
        c!((*self.qp).qp_num)
    }

    pub(super) fn modify(&self, attr: ibv_qp_attr, mask: i32) -> c_int {
        let mut attr = attr;
        c!((self.verbs.ibv_modify_qp)(self.qp, &raw mut attr, mask))
    }

    /// Connects a queue pair to `peer`, with this limit of retries for a peer without a receive.
    pub(super) fn connect(&self, peer: u32, rnr_retry: u8) {
        use qp_mask as m;
        let attr = ibv_qp_attr {
            path_mtu: 3,
            dest_qp_num: peer,
            qp_access_flags: RIGHTS,
            qkey: KEY,
            ah_attr: path(),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry,
            ..ibv_qp_attr::default()
        };
        let qp_type = c!((*self.qp.cast::<abi::ibv_qp_ex>()).qp_type);
        let steps = match qp_type {
            QPT_UD => [m::QKEY, 0, m::SQ_PSN],
            _ => [
                m::ACCESS_FLAGS,
                m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN | m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER,
                m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::SQ_PSN | m::MAX_QP_RD_ATOMIC,
            ],
        };
        for (mask, qp_state) in steps.into_iter().zip(1..) {
            let first = if qp_state == qp_state::INIT { m::PKEY_INDEX | m::PORT } else { 0 };
            assert_eq!(self.modify(ibv_qp_attr { qp_state, ..attr }, m::STATE | mask | first), 0);
        }
    }

    /// Returns a piece of the buffer.
    pub(super) fn piece(&self, at: usize, length: u32) -> ibv_sge {
        ibv_sge { addr: self.addr(at), length, lkey: c!((*self.mr).lkey) }
    }

    pub(super) fn addr(&self, at: usize) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64 + at as u64
    }

    pub(super) fn rkey(&self) -> u32 {
        c!((*self.mr).rkey)
    }

    pub(super) fn at(&mut self, at: usize, len: usize) -> &mut [u8] {
        let bytes = self.bytes.as_mut_ptr().cast::<u8>().wrapping_add(at);
        c!(std::slice::from_raw_parts_mut(bytes, len))
    }

    pub(super) fn receive(&self, wr_id: u64, pieces: &mut [ibv_sge]) -> c_int {
        let num_sge = pieces.len() as c_int;
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: pieces.as_mut_ptr(), num_sge };
        let mut bad = ptr::null_mut();
        let call = c!((*self.context).ops.post_recv).unwrap();
        c!(call(self.qp, &raw mut wr, &raw mut bad))
    }

    /// Posts a request, whose other fields `set` sets.
    pub(super) fn post(
        &self,
        opcode: c_int,
        pieces: &mut [ibv_sge],
        set: impl FnOnce(&mut ibv_send_wr),
    ) -> c_int {
        let mut wr = ibv_send_wr {
            wr_id: 9,
            next: ptr::null_mut(),
            sg_list: pieces.as_mut_ptr(),
            num_sge: pieces.len() as c_int,
            opcode,
            send_flags: 0,
            imm_data: 0,
            remote_addr: 0,
            rkey: 0,
            others: [0; 9],
        };
        set(&mut wr);
        let mut bad = ptr::null_mut();
        let call = c!((*self.context).ops.post_send).unwrap();
        let code = c!(call(self.qp, &raw mut wr, &raw mut bad));
        assert_eq!(code != 0, ptr::eq(bad, &raw const wr));
        code
    }

    /// Posts an atomic operation on the peer's first 8 bytes, with the result at the end of the own buffer.
    pub(super) fn atomic(&self, opcode: c_int, (addr, rkey): (u64, u32), operands: [u64; 2]) -> c_int {
        self.post(opcode, &mut [self.piece(SIZE - 8, 8)], |wr| {
            wr.remote_addr = addr;
            let operand = (&raw mut wr.rkey).cast::<u64>();
            c!(*operand = operands[0]);
            wr.others[0] = operands[1];
            wr.others[1] = u64::from_ne_bytes([rkey.to_ne_bytes(), [0; 4]].concat().try_into().unwrap());
        })
    }

    /// Waits for completions.
    pub(super) fn poll(&self, number: usize) -> Vec<ibv_wc> {
        let call = c!((*self.context).ops.poll_cq).unwrap();
        let (mut found, start) = (Vec::new(), Instant::now());
        while found.len() < number {
            let mut entry = ibv_wc::default();
            match c!(call(self.cq, 1, &raw mut entry)) {
                1 => found.push(entry),
                other => assert_eq!(other, 0),
            }
            assert!(start.elapsed() < PATIENCE, "{found:?}");
        }
        found
    }

    pub(super) fn statuses(&self, number: usize) -> Vec<(u64, c_int)> {
        self.poll(number).iter().map(|entry| (entry.wr_id, entry.status)).collect()
    }

    pub(super) fn arm(&self, solicited: c_int) {
        let call = c!((*self.context).ops.req_notify_cq).unwrap();
        assert_eq!(c!(call(self.cq, solicited)), 0);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let verbs = &self.verbs;
        if !self.qp.is_null() {
            assert_eq!(c!((verbs.ibv_destroy_qp)(self.qp)), 0);
        }
        assert_eq!(c!((verbs.ibv_dereg_mr)(self.mr)), 0);
        assert_eq!(c!((verbs.ibv_destroy_cq)(self.cq)), 0);
        assert_eq!(c!((verbs.ibv_destroy_comp_channel)(self.channel)), 0);
        assert_eq!(c!((verbs.ibv_dealloc_pd)(self.pd)), 0);
        assert_eq!(c!((verbs.ibv_close_device)(self.context)), 0);
    }
}

pub(super) fn path() -> ibv_ah_attr {
    let grh = ibv_global_route { dgid: GID, sgid_index: 1, ..ibv_global_route::default() };
    ibv_ah_attr { grh, is_global: 1, port_num: 1, ..ibv_ah_attr::default() }
}
