//! Queue pairs and address handles.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use verbs_sys::*;

use super::objects::{
    EmuQp, MAX_INLINE, MAX_SGE, context_of, cq_of, give, qp_of, refused, srq_of, state_of, take,
};
use crate::abi;
use crate::abi::init_mask;
use crate::device::{GID, Queue, Shared, State, lock};
use crate::network::Node;
use crate::requests::writers;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller passes valid attributes, which can be written.
    new_qp(pd, unsafe { &mut *attr }, false)
}

/// `IBV_QP_EX_WITH_*` of the requests that a queue pair can build in place: writes, sends, both with
/// immediate data, reads, atomic operations.
const SEND_OPS: u64 = 0x7f;

pub(super) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut abi::ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller passes valid attributes, which can be written.
    let attr = unsafe { &mut *attr };
    let has_flags = attr.comp_mask & init_mask::SEND_OPS_FLAGS != 0;
    if attr.comp_mask & !(init_mask::PD | init_mask::SEND_OPS_FLAGS) != 0
        || attr.comp_mask & init_mask::PD == 0
        || (has_flags && attr.send_ops_flags & !SEND_OPS != 0)
    {
        return refused(libc::EOPNOTSUPP);
    }
    let &mut abi::ibv_qp_init_attr_ex { qp_context, send_cq, recv_cq, srq, cap, qp_type, .. } = attr;
    let sq_sig_all = attr.sq_sig_all;
    let mut plain = ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    let qp = new_qp(attr.pd, &mut plain, has_flags);
    attr.cap = plain.cap;
    qp
}

fn new_qp(pd: *mut ibv_pd, init: &mut ibv_qp_init_attr, builds: bool) -> *mut ibv_qp {
    let context = context_of(pd);
    let shared = state_of(context);
    let mut state = lock(&shared);
    if state.error("create_qp").is_some() {
        return ptr::null_mut();
    }
    let ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, qp_type, sq_sig_all, .. } = *init;
    let cap = &mut init.cap;
    let most = state.max_qp_wr as u32;
    if !(QPT_RC..=QPT_UD).contains(&qp_type) {
        return refused(libc::EOPNOTSUPP);
    }
    let receives = if srq.is_null() { (cap.max_recv_wr, cap.max_recv_sge) } else { (0, 0) };
    if cap.max_send_wr > most
        || receives.0 > most
        || cap.max_send_sge.max(receives.1) > MAX_SGE
        || cap.max_inline_data > MAX_INLINE
        || send_cq.is_null()
        || recv_cq.is_null()
    {
        return refused(libc::EINVAL);
    }
    (cap.max_recv_wr, cap.max_recv_sge) = receives;
    let Some(qp_num) = number_of_new(&shared, &mut state) else {
        return refused(libc::ENOMEM);
    };
    let base = ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle: qp_num, qp_num };
    let qp = give(
        &mut state,
        EmuQp {
            public: writers(base, qp_type),
            builds,
            is_building: AtomicBool::new(false),
            built: Vec::new(),
        },
    );
    let (_, send_cq) = cq_of(send_cq);
    let (_, recv_cq) = cq_of(recv_cq);
    let queue = Queue {
        pd: pd.addr(),
        qp_type,
        attr: ibv_qp_attr { cap: *cap, ..ibv_qp_attr::default() },
        send_cq,
        recv_cq,
        srq: (!srq.is_null()).then(|| srq_of(srq.cast()).1),
        signals_all: sq_sig_all != 0,
        ..Queue::default()
    };
    state.queues.insert(qp_num, queue);
    qp.cast()
}

/// Returns the queue pair with the calls that build requests in place, if it was made for them.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut abi::ibv_qp_ex {
    // SAFETY: the object was made by `new_qp`.
    if unsafe { (*qp.cast::<EmuQp>()).builds } { qp.cast() } else { ptr::null_mut() }
}

/// Makes an address of a peer on this machine. It has no state: datagrams name the peer's queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut abi::ibv_ah {
    let context = context_of(pd);
    let state = state_of(context);
    let mut state = lock(&state);
    // SAFETY: the caller passes valid attributes.
    if !reaches(state.link_layer, unsafe { &*attr }) {
        return refused(libc::EINVAL);
    }
    state.keys += 2;
    let handle = state.keys;
    give(&mut state, abi::ibv_ah { context, pd, handle })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut abi::ibv_ah) -> c_int {
    // SAFETY: the object was made by `ibv_create_ah`.
    let state = state_of(unsafe { (*ah).context });
    // SAFETY: the object was made by `ibv_create_ah`, and is destroyed once.
    unsafe { take(&mut lock(&state), ah) };
    0
}

/// Returns true if a path leads from this port to this machine's port.
fn reaches(link_layer: u8, path: &ibv_ah_attr) -> bool {
    let global = link_layer == LINK_LAYER_ETHERNET;
    path.port_num == 1 && (!global || (path.is_global == 1 && path.grh.dgid == GID))
}

/// Returns the number of a new queue pair.
fn number_of_new(shared: &Shared, state: &mut State) -> Option<u32> {
    if !state.is_networked {
        state.keys += 2;
        return Some(state.keys);
    }
    if !state.node.as_ref().is_some_and(Node::is_of_this_process) {
        // The entry of the process before the fork must not be dropped, because the drop would end it in that
        // process.
        std::mem::forget(state.node.take());
        state.node = Node::new(Arc::downgrade(shared)).ok();
    }
    let State { node, queues, .. } = state;
    node.as_mut()?.number(|number| queues.contains_key(&number))
}

/// Returns the attributes that a step from one state to another needs, and those that it may have besides:
/// ibv_modify_qp(3) lists them. Returns `None` if there is no such step.
const fn step_masks(qp_type: c_int, from: c_int, to: c_int) -> Option<(c_int, c_int)> {
    use qp_mask as m;
    let own = if qp_type == QPT_UD { m::QKEY } else { m::ACCESS_FLAGS };
    let path = m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN;
    let (path, receives, sends) = match qp_type {
        QPT_UD => (0, 0, 0),
        QPT_UC => (path, 0, 0),
        _ => (
            path,
            m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER,
            m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::MAX_QP_RD_ATOMIC,
        ),
    };
    Some(match (from, to) {
        (_, qp_state::RESET | qp_state::ERR) => (m::STATE, m::CUR_STATE),
        (qp_state::RESET, qp_state::INIT) => (m::STATE | m::PKEY_INDEX | m::PORT | own, 0),
        (qp_state::INIT, qp_state::INIT) => (0, m::STATE | m::PKEY_INDEX | m::PORT | own),
        (qp_state::INIT, qp_state::RTR) => (m::STATE | path | receives, m::PKEY_INDEX | own),
        (qp_state::RTR, qp_state::RTS) => {
            (m::STATE | m::SQ_PSN | sends, m::CUR_STATE | own | m::MIN_RNR_TIMER)
        }
        (qp_state::RTS, qp_state::RTS) => (0, m::STATE | m::CUR_STATE | own | m::MIN_RNR_TIMER),
        _ => return None,
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    use qp_mask as m;
    let (state, number) = qp_of(qp);
    let mut state = lock(&state);
    if let Some(code) = state.error("modify_qp") {
        return code;
    }
    // SAFETY: the caller passes valid attributes.
    let attr = unsafe { &*attr };
    let link_layer = state.link_layer;
    let State { queues, node, .. } = &mut *state;
    let Some(queue) = queues.get_mut(&number) else { return libc::EINVAL };
    let from = queue.attr.qp_state;
    let to = if mask & m::STATE != 0 { attr.qp_state } else { from };
    let Some((needs, may)) = step_masks(queue.qp_type, from, to) else { return libc::EINVAL };
    if mask & needs != needs
        || mask & !(needs | may) != 0
        || (mask & m::PORT != 0 && attr.port_num != 1)
        || (mask & m::PKEY_INDEX != 0 && attr.pkey_index != 0)
        || (mask & m::CUR_STATE != 0 && attr.cur_qp_state != from)
        || (mask & m::AV != 0 && !reaches(link_layer, &attr.ah_attr))
        || (mask & m::PATH_MTU != 0 && !(1..=4).contains(&attr.path_mtu))
        || (mask & m::DEST_QPN != 0 && attr.dest_qp_num == 0)
    {
        return libc::EINVAL;
    }
    macro_rules! set {
        ($($bit:ident $field:ident;)*) => {
            $(if mask & m::$bit != 0 {
                queue.attr.$field = attr.$field;
            })*
        };
    }
    set! {
        STATE qp_state; QKEY qkey; ACCESS_FLAGS qp_access_flags; PKEY_INDEX pkey_index; PORT port_num; AV ah_attr;
        PATH_MTU path_mtu; TIMEOUT timeout; RETRY_CNT retry_cnt; RNR_RETRY rnr_retry; RQ_PSN rq_psn;
        MAX_QP_RD_ATOMIC max_rd_atomic; MIN_RNR_TIMER min_rnr_timer; SQ_PSN sq_psn;
        MAX_DEST_RD_ATOMIC max_dest_rd_atomic; DEST_QPN dest_qp_num;
    }
    // SAFETY: the object was made by `new_qp`.
    unsafe { (*qp.cast::<EmuQp>()).public.state = to };
    match to {
        qp_state::RESET => {
            queue.waiting.clear();
            queue.receives.clear();
            queue.retired = queue.posted;
            // An answer that arrives after this is ignored.
            queue.resets += 1;
            queue.is_asking = false;
            queue.attr = ibv_qp_attr { cap: queue.attr.cap, ..ibv_qp_attr::default() };
        }
        qp_state::RTR => {
            let is_datagram = queue.qp_type == QPT_UD;
            if let Some(node) = node.as_mut().filter(|node| is_datagram || node.is_foreign(attr.dest_qp_num))
                && node.serve().is_err()
            {
                return libc::ENOMEM;
            }
        }
        qp_state::ERR => {
            state.fail(number);
            state.run_queue(number, u64::MAX);
        }
        _ => {}
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let (state, number) = qp_of(qp);
    let state = lock(&state);
    let Some(queue) = state.queues.get(&number) else { return libc::EINVAL };
    let current = ibv_qp_attr { cur_qp_state: queue.attr.qp_state, ..queue.attr };
    // SAFETY: the object was made by `new_qp`.
    let &ibv_qp { qp_context, send_cq, recv_cq, srq, .. } = unsafe { &*qp };
    let (cap, sq_sig_all) = (queue.attr.cap, queue.signals_all.into());
    // SAFETY: the caller passes a pointer to which the attributes can be written.
    unsafe { *attr = current };
    let qp_type = queue.qp_type;
    let made = ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    // SAFETY: the caller passes a pointer to which the attributes can be written.
    unsafe { *init = made };
    0
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let (state, number) = qp_of(qp);
    let mut state = lock(&state);
    if let Some(code) = state.error("destroy_qp") {
        return code;
    }
    state.queues.remove(&number);
    // SAFETY: the object was made by `new_qp`, and is destroyed once.
    unsafe { take(&mut state, qp.cast::<EmuQp>()) };
    0
}
