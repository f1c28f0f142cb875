//! The calls that programs make: sends, receives, atomic operations, events, datagrams, and refusals. Each
//! exchange runs between two queue pairs of one device, and between two devices, whose bytes pass a socket.
#![expect(unsafe_code, reason = "calls the functions as C does")]

/// Evaluates an expression that calls C functions or reads their objects.
macro_rules! c {
    ($($expression:tt)*) => {{
        // SAFETY: the tests pass objects that the library made and that they have not destroyed yet, and
        // pointers to variables and buffers of their own. Requests name registered memory that outlives them.
        unsafe { $($expression)* }
    }};
}

mod end;

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use end::{End, KEY, PATIENCE, RIGHTS, SIZE, networked, path};
use verbs_sys::*;

use crate::abi::{self, init_mask};
use crate::calls::memory::ibv_reg_mr_iova2;
use crate::calls::queue_pairs::{ibv_create_ah, ibv_destroy_ah, ibv_qp_to_qp_ex, ibv_query_qp};
use crate::calls::shared_receives::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq};
use crate::device::{GID, Nic, wc};

/// Returns two ends on one device, and two ends on different devices.
fn ends(qp_type: c_int, rnr_retry: u8) -> [(End, End); 2] {
    let one = networked();
    [(one.clone(), one), (networked(), networked())].map(|(a, b)| {
        let (a, b) = (End::of_type(&a, qp_type), End::of_type(&b, qp_type));
        a.connect(b.number(), rnr_retry);
        b.connect(a.number(), rnr_retry);
        (a, b)
    })
}

#[test]
fn sends_scatter_into_receives() {
    for (mut a, mut b) in ends(QPT_RC, 7) {
        a.at(0, 50).iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
        let mut places = [b.piece(100, 7), b.piece(200, 0), b.piece(300, 90)];
        assert_eq!(b.receive(5, &mut places), 0);
        let mut pieces = [a.piece(0, 20), a.piece(20, 30)];
        assert_eq!(a.post(WR_SEND_WITH_IMM, &mut pieces, |wr| wr.imm_data = 0xabcd), 0);
        let sent = a.poll(1)[0];
        assert_eq!((sent.wr_id, sent.status, sent.opcode, sent.qp_num), (9, 0, 0, a.number()));
        let got = b.poll(1)[0];
        assert_eq!((got.wr_id, got.status, got.opcode, got.byte_len), (5, 0, 128, 50));
        assert_eq!((got.imm_data, got.wc_flags), (0xabcd, 2));
        assert_eq!((got.qp_num, got.src_qp), (b.number(), a.number()));
        let bytes = [b.at(100, 7).to_vec(), b.at(300, 43).to_vec()].concat();
        assert!(bytes.iter().copied().eq(0..50), "{bytes:?}");
        // A receive is used once, and a queue has as many places as it was made for.
        let posted = (0..11).map(|id| b.receive(id, &mut [])).collect::<Vec<_>>();
        assert_eq!((posted[9], posted[10]), (0, libc::ENOMEM));
    }
}

#[test]
fn a_send_waits_for_a_receive_or_fails_as_the_retries_say() {
    for (a, b) in ends(QPT_RC, 7) {
        assert_eq!(a.post(WR_SEND, &mut [a.piece(0, 8)], |_| ()), 0);
        assert_eq!(b.receive(1, &mut [b.piece(0, 8)]), 0);
        assert_eq!((a.statuses(1), b.statuses(1)), (vec![(9, 0)], vec![(1, 0)]));
    }
    for (a, b) in ends(QPT_RC, 2) {
        assert_eq!(a.post(WR_SEND, &mut [a.piece(0, 8)], |_| ()), 0);
        assert_eq!(a.statuses(1), [(9, wc::NOT_READY)]);
        // The queue pair is in the error state: it flushes later requests.
        assert_eq!(a.receive(3, &mut []), 0);
        assert_eq!(a.post(WR_SEND, &mut [], |_| ()), 0);
        assert_eq!(a.statuses(2), [(3, wc::FLUSHED), (9, wc::FLUSHED)]);
        drop(b);
    }
}

#[test]
fn a_receive_that_is_too_short_or_not_writable_fails_on_both_sides() {
    for (a, b) in ends(QPT_RC, 7) {
        assert_eq!((b.receive(1, &mut [b.piece(0, 7)]), b.receive(2, &mut [])), (0, 0));
        assert_eq!(a.post(WR_SEND, &mut [a.piece(0, 8)], |_| ()), 0);
        assert_eq!(a.statuses(1), [(9, wc::REMOTE_INVALID)]);
        assert_eq!(b.statuses(2), [(1, wc::LENGTH), (2, wc::FLUSHED)]);
    }
    for (a, b) in ends(QPT_RC, 7) {
        let foreign = ibv_sge { lkey: b.rkey(), ..b.piece(0, 8) };
        assert_eq!(b.receive(1, &mut [foreign]), 0);
        assert_eq!(a.post(WR_SEND, &mut [a.piece(0, 8)], |_| ()), 0);
        assert_eq!(a.statuses(1), [(9, wc::REMOTE_FAILED)]);
        assert_eq!(b.statuses(1), [(1, wc::PROTECTION)]);
    }
}

#[test]
fn writes_with_immediate_data_use_a_receive() {
    for (mut a, mut b) in ends(QPT_RC, 7) {
        a.at(0, 16).fill(7);
        assert_eq!(b.receive(4, &mut []), 0);
        let (remote_addr, rkey) = (b.addr(64), b.rkey());
        let set = |wr: &mut ibv_send_wr| (wr.remote_addr, wr.rkey, wr.imm_data) = (remote_addr, rkey, 3);
        assert_eq!(a.post(WR_RDMA_WRITE_WITH_IMM, &mut [a.piece(0, 16)], set), 0);
        assert_eq!(a.poll(1)[0].opcode, 1);
        let got = b.poll(1)[0];
        assert_eq!((got.wr_id, got.opcode, got.byte_len, got.imm_data), (4, 129, 16, 3));
        assert_eq!(b.at(64, 16), [7; 16]);
    }
}

#[test]
fn atomic_operations_return_the_earlier_value() {
    for (mut a, mut b) in ends(QPT_RC, 7) {
        b.bytes[0] = 40;
        let place = (b.addr(0), b.rkey());
        assert_eq!(a.atomic(WR_ATOMIC_FETCH_AND_ADD, place, [2, 0]), 0);
        assert_eq!((a.poll(1)[0].opcode, a.bytes[SIZE / 8 - 1], b.bytes[0]), (4, 40, 42));
        assert_eq!(a.atomic(WR_ATOMIC_CMP_AND_SWP, place, [41, 1]), 0);
        assert_eq!((a.poll(1)[0].opcode, a.bytes[SIZE / 8 - 1], b.bytes[0]), (3, 42, 42));
        assert_eq!(a.atomic(WR_ATOMIC_CMP_AND_SWP, place, [42, 1]), 0);
        assert_eq!((a.poll(1)[0].status, a.bytes[SIZE / 8 - 1], b.bytes[0]), (0, 42, 1));
        assert_eq!(a.atomic(WR_ATOMIC_FETCH_AND_ADD, (b.addr(4), b.rkey()), [2, 0]), 0);
        assert_eq!(a.statuses(1), [(9, wc::REMOTE_INVALID)]);
        b.at(0, 1);
        a.at(0, 1);
    }
}

#[test]
fn ranges_that_wrap_around_are_refused() {
    for (a, b) in ends(QPT_RC, 7) {
        let rkey = b.rkey();
        let set = |wr: &mut ibv_send_wr| (wr.remote_addr, wr.rkey) = (u64::MAX - 3, rkey);
        assert_eq!(a.post(WR_RDMA_WRITE, &mut [a.piece(0, 16)], set), 0);
        assert_eq!(a.statuses(1), [(9, wc::REMOTE_ACCESS)]);
        let end = ptr::without_provenance_mut(usize::MAX - 3);
        assert!(c!((a.verbs.ibv_reg_mr)(a.pd, end, 16, 0)).is_null());
    }
}

#[test]
fn the_addresses_of_a_region_may_begin_elsewhere() {
    for (a, mut b) in ends(QPT_RC, 7) {
        let start = b.bytes.as_mut_ptr().cast();
        let mr = c!(ibv_reg_mr_iova2(b.pd, start, 16, 1 << 40, RIGHTS as u32));
        let rkey = c!((*mr).rkey);
        let set = |wr: &mut ibv_send_wr| {
            (wr.remote_addr, wr.rkey, wr.send_flags) = (1 << 40 | 8, rkey, SEND_INLINE);
        };
        // Inline data needs no key, and the program may change it at once.
        let mut value = 55_u64;
        let addr = (&raw mut value).expose_provenance() as u64;
        assert_eq!(a.post(WR_RDMA_WRITE, &mut [ibv_sge { addr, length: 8, lkey: 0 }], set), 0);
        value = 0;
        assert_eq!((a.statuses(1), b.bytes[1], value), (vec![(9, 0)], 55, 0));
        let mut long = [a.piece(0, 65)];
        let refused = a.post(WR_SEND, &mut long, |wr| wr.send_flags = SEND_INLINE);
        assert_eq!(refused, libc::EINVAL);
        assert_eq!(c!((b.verbs.ibv_dereg_mr)(mr)), 0);
    }
}

#[test]
fn only_solicited_completions_signal_a_queue_that_waits_for_these() {
    for (a, b) in ends(QPT_RC, 7) {
        for id in 1..=2 {
            assert_eq!(b.receive(id, &mut []), 0);
        }
        b.arm(1);
        assert_eq!(a.post(WR_SEND, &mut [], |_| ()), 0);
        assert_eq!(b.statuses(1), [(1, 0)]);
        assert!(!is_readable(c!((*b.channel).fd)));
        assert_eq!(a.post(WR_SEND, &mut [], |wr| wr.send_flags = SEND_SOLICITED), 0);
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let event = c!((b.verbs.ibv_get_cq_event)(b.channel, &raw mut cq, &raw mut context));
        assert_eq!((event, cq, context.addr()), (0, b.cq, 77));
        assert_eq!(b.statuses(1), [(2, 0)]);
        assert_eq!(a.statuses(2), [(9, 0), (9, 0)]);
        // An event that was not acknowledged keeps the queue.
        let qp = c!((b.verbs.ibv_destroy_qp)(b.qp));
        assert_eq!((qp, c!((b.verbs.ibv_destroy_cq)(b.cq))), (0, libc::EBUSY));
        c!((b.verbs.ibv_ack_cq_events)(b.cq, 1));
        let mut b = b;
        b.qp = ptr::null_mut();
    }
}

fn is_readable(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    c!(libc::poll(&raw mut poll, 1, 0) == 1)
}

#[test]
fn an_asynchronous_event_makes_its_file_readable() {
    let nic = networked();
    let end = End::new(&nic);
    let fd = c!((*end.context).async_fd);
    assert!(!is_readable(fd));
    nic.state().emit(EVENT_DEVICE_FATAL);
    assert!(is_readable(fd));
    let mut event = ibv_async_event { element: ptr::null_mut(), event_type: -1 };
    let got = c!((end.verbs.ibv_get_async_event)(end.context, &raw mut event));
    assert_eq!((got, event.event_type, is_readable(fd)), (0, EVENT_DEVICE_FATAL, false));
}

#[test]
fn requests_to_a_device_that_is_gone_fail() {
    let [_, (a, b)] = ends(QPT_RC, 7);
    assert_eq!(b.receive(1, &mut []), 0);
    assert_eq!(a.post(WR_SEND, &mut [], |_| ()), 0);
    assert_eq!((a.statuses(1), b.statuses(1)), (vec![(9, 0)], vec![(1, 0)]));
    drop(b);
    assert_eq!((a.post(WR_SEND, &mut [], |_| ()), a.post(WR_SEND, &mut [], |_| ())), (0, 0));
    assert_eq!(a.statuses(2), [(9, wc::NO_ANSWER), (9, wc::FLUSHED)]);
}

/// Programs end when they have counted what they sent and received, and their peers then end with requests on
/// the way.
#[test]
fn a_peer_that_has_ended_is_reported_after_what_it_has_done() {
    let [_, (a, b)] = ends(QPT_RC, 7);
    let wait = || {
        let start = Instant::now();
        while a.nic.state().unanswered.is_empty() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    };
    let polled = |most: usize| {
        let mut entries = vec![ibv_wc::default(); most];
        let call = c!((*a.context).ops.poll_cq).unwrap();
        let number = c!(call(a.cq, most as c_int, entries.as_mut_ptr()));
        entries[..number as usize].iter().map(|entry| entry.status).collect::<Vec<_>>()
    };
    assert_eq!(b.receive(1, &mut []), 0);
    assert_eq!(a.post(WR_SEND, &mut [], |_| ()), 0);
    assert_eq!(b.statuses(1), [(1, 0)]);
    drop(b);
    assert_eq!(a.post(WR_SEND, &mut [], |_| ()), 0);
    wait();
    assert_eq!(polled(10), [0]);
    // The peer knows that its send has arrived here, but the completion is still on its way.
    a.nic.state().undelivered = 1;
    assert!(polled(10).is_empty());
    a.nic.state().undelivered = 0;
    assert_eq!(polled(10), [wc::NO_ANSWER]);
    assert!(polled(10).is_empty());
}

#[test]
fn a_peer_that_has_ended_wakes_a_program_that_waits_for_events() {
    let [_, (a, b)] = ends(QPT_RC, 7);
    let event = || {
        let mut poll = libc::pollfd { fd: c!((*a.channel).fd), events: libc::POLLIN, revents: 0 };
        assert_eq!(c!(libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as c_int)), 1);
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(c!((a.verbs.ibv_get_cq_event)(a.channel, &raw mut cq, &raw mut context)), 0);
        c!((a.verbs.ibv_ack_cq_events)(cq, 1));
    };
    assert_eq!(b.receive(1, &mut []), 0);
    a.arm(0);
    assert_eq!(a.post(WR_SEND, &mut [], |_| ()), 0);
    event();
    assert_eq!(b.statuses(1), [(1, 0)]);
    drop(b);
    // The completion of the first request is not polled yet, so the event comes without another completion.
    a.arm(0);
    assert_eq!(a.post(WR_SEND, &mut [], |_| ()), 0);
    event();
    assert_eq!(a.statuses(1), [(9, 0)]);
    a.arm(0);
    event();
    assert_eq!(a.statuses(1), [(9, wc::NO_ANSWER)]);
}

#[test]
fn datagrams_arrive_or_are_lost() {
    for (mut a, mut b) in ends(QPT_UD, 0) {
        let mut to = path();
        let ah = c!(ibv_create_ah(a.pd, &raw mut to));
        to.grh.dgid.raw[15] = 2;
        assert!(c!(ibv_create_ah(a.pd, &raw mut to)).is_null());
        let number = b.number();
        let send = |a: &End, key: u32, len: u32| {
            a.post(WR_SEND, &mut [a.piece(0, len)], |wr| {
                (wr.remote_addr, wr.rkey) = (ah.expose_provenance() as u64, number);
                let second = (&raw mut wr.rkey).wrapping_add(1);
                c!(*second = key);
            })
        };
        a.at(0, 8).fill(6);
        // Nobody receives the first one, and the second one has another key.
        assert_eq!(send(&a, KEY, 8), 0);
        assert_eq!(a.statuses(1), [(9, 0)]);
        assert_eq!(b.receive(1, &mut [b.piece(0, 48)]), 0);
        assert_eq!((send(&a, KEY + 1, 8), send(&a, KEY, 8)), (0, 0));
        assert_eq!(a.statuses(2), [(9, 0), (9, 0)]);
        let got = b.poll(1)[0];
        assert_eq!((got.wr_id, got.byte_len, got.wc_flags, got.src_qp), (1, 48, 1, a.number()));
        assert_eq!((b.at(24, 16) == GID.raw, b.at(40, 8)), (true, &mut [6; 8][..]));
        assert_eq!(a.post(WR_RDMA_WRITE, &mut [], |wr| wr.remote_addr = 1), libc::EINVAL);
        assert_eq!(send(&a, KEY, 1025), 0);
        assert_eq!(a.statuses(1), [(9, wc::LENGTH)]);
        assert_eq!(c!(ibv_destroy_ah(ah)), 0);
    }
}

#[test]
fn a_shared_receive_queue_serves_its_pairs_and_reports_its_limit() {
    let nic = networked();
    let (mut a, b) = (End::new(&nic), End::without_pair(&nic));
    let mut init = abi::ibv_srq_init_attr {
        srq_context: ptr::null_mut(),
        attr: abi::ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 },
    };
    let srq = c!(ibv_create_srq(b.pd, &raw mut init));
    let mut b = b;
    b.qp = b.pair(QPT_RC, srq.cast(), 0);
    a.connect(b.number(), 7);
    b.connect(a.number(), 7);
    assert_eq!(b.receive(1, &mut []), libc::EINVAL);
    let mut limit = abi::ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 2 };
    assert_eq!(c!(ibv_modify_srq(srq, &raw mut limit, 2)), 0);
    let call = c!((*b.context).ops.post_srq_recv).unwrap();
    for wr_id in 0..2 {
        let mut piece = b.piece(wr_id as usize * 8, 8);
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut piece, num_sge: 1 };
        let mut bad = ptr::null_mut();
        assert_eq!(c!(call(srq.cast(), &raw mut wr, &raw mut bad)), 0);
    }
    a.at(0, 8).fill(1);
    assert_eq!(a.post(WR_SEND, &mut [a.piece(0, 8)], |_| ()), 0);
    assert_eq!((a.statuses(1), b.statuses(1)), (vec![(9, 0)], vec![(0, 0)]));
    assert_eq!(b.at(0, 9), [1, 1, 1, 1, 1, 1, 1, 1, 0]);
    let mut event = ibv_async_event { element: ptr::null_mut(), event_type: -1 };
    assert_eq!(c!((b.verbs.ibv_get_async_event)(b.context, &raw mut event)), 0);
    assert_eq!((event.event_type, event.element), (15, srq.cast()));
    assert_eq!(c!(ibv_destroy_srq(srq)), libc::EBUSY);
    assert_eq!(c!((b.verbs.ibv_destroy_qp)(b.qp)), 0);
    b.qp = ptr::null_mut();
    assert_eq!(c!(ibv_destroy_srq(srq)), 0);
}

#[test]
fn requests_can_be_built_in_place() {
    let nic = networked();
    let (mut a, b) = (End::without_pair(&nic), End::new(&nic));
    let plain = a.init(QPT_RC, ptr::null_mut(), 1);
    let mut init = abi::ibv_qp_init_attr_ex {
        qp_context: ptr::null_mut(),
        send_cq: plain.send_cq,
        recv_cq: plain.recv_cq,
        srq: ptr::null_mut(),
        cap: plain.cap,
        qp_type: QPT_RC,
        sq_sig_all: 1,
        comp_mask: init_mask::PD | init_mask::SEND_OPS_FLAGS,
        pd: a.pd,
        xrcd: ptr::null_mut(),
        create_flags: 0,
        max_tso_header: 0,
        rwq_ind_tbl: ptr::null_mut(),
        rx_hash_conf: [0; 3],
        source_qpn: 0,
        send_ops_flags: 1 << 0 | 1 << 2,
    };
    let before = std::mem::offset_of!(abi::verbs_context, context);
    let extended = a.context.wrapping_byte_sub(before).cast::<abi::verbs_context>();
    assert_eq!(c!(((*extended).abi_compat, (*extended).sz)), (usize::MAX, size_of::<abi::verbs_context>()));
    let create = c!((*extended).create_qp_ex);
    a.qp = c!(create(a.context, &raw mut init));
    init.send_ops_flags = 1 << 10;
    assert!(c!(create(a.context, &raw mut init)).is_null());
    assert!(c!(ibv_qp_to_qp_ex(b.qp)).is_null());
    let qp = c!(ibv_qp_to_qp_ex(a.qp));
    a.connect(b.number(), 7);
    b.connect(a.number(), 7);
    assert_eq!(b.receive(3, &mut [b.piece(0, 16)]), 0);
    let calls = c!(ptr::read(qp));
    let mut text = *b"written in place";
    c! {
    (calls.wr_start)(qp);
            (calls.wr_send)(qp);
            (calls.wr_abort)(qp);
            (calls.wr_start)(qp);
            ((*qp).wr_id, (*qp).wr_flags) = (1, 0);
            (calls.wr_rdma_write)(qp, b.rkey(), b.addr(100));
            (calls.wr_set_inline_data)(qp, text.as_mut_ptr().cast(), 16);
            (*qp).wr_id = 2;
            (calls.wr_send)(qp);
            (calls.wr_set_sge)(qp, (*a.mr).lkey, a.addr(0), 16);
            assert_eq!((calls.wr_complete)(qp), 0);
    }
    assert_eq!((a.statuses(2), b.statuses(1)), (vec![(1, 0), (2, 0)], vec![(3, 0)]));
    let mut b = b;
    assert_eq!(b.at(100, 16), *b"written in place");
    // More pieces than a queue pair has: nothing of the list is posted.
    let pieces = vec![a.piece(0, 1); 40];
    c! {
    (calls.wr_start)(qp);
            (calls.wr_send)(qp);
            (calls.wr_send)(qp);
            (calls.wr_set_sge_list)(qp, pieces.len(), pieces.as_ptr());
            assert_eq!((calls.wr_complete)(qp), libc::EINVAL);
    }
    assert!(a.nic.state().queues[&a.number()].waiting.is_empty());
}

#[test]
fn old_programs_get_a_port_without_the_last_field() {
    let end = End::new(&networked());
    let mut attr = [0xee_u8; 60];
    let query = end.verbs.ibv_query_port;
    assert_eq!(c!(query(end.context, 1, attr.as_mut_ptr().cast())), 0);
    assert_eq!((attr[46], attr[47], attr[48]), (LINK_LAYER_ETHERNET, 0, 0xee));
    let before = std::mem::offset_of!(abi::verbs_context, context);
    let extended = end.context.wrapping_byte_sub(before).cast::<abi::verbs_context>();
    let query = c!((*extended).query_port);
    assert_eq!(c!(query(end.context, 1, attr.as_mut_ptr().cast(), 56)), 0);
    assert_eq!((attr[48], attr[55], attr[56]), (0, 0, 0xee));
    assert_eq!(c!(query(end.context, 2, attr.as_mut_ptr().cast(), 56)), libc::EINVAL);
}

#[test]
fn steps_need_their_attributes_and_the_error_state_flushes() {
    use qp_mask as m;
    let end = End::new(&networked());
    let init = ibv_qp_attr { qp_state: qp_state::INIT, port_num: 1, ..ibv_qp_attr::default() };
    let needs = m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS;
    for mask in [needs & !m::PORT, needs | m::AV, m::STATE] {
        assert_eq!(end.modify(init, mask), libc::EINVAL, "{mask:x}");
    }
    assert_eq!(end.receive(1, &mut []), libc::EINVAL);
    end.connect(end.number(), 7);
    assert_eq!(end.receive(1, &mut []), 0);
    let mut attr = ibv_qp_attr::default();
    let mut made = end.init(QPT_UD, ptr::null_mut(), 0);
    assert_eq!(c!(ibv_query_qp(end.qp, &raw mut attr, m::STATE, &raw mut made)), 0);
    assert_eq!((attr.qp_state, attr.dest_qp_num, attr.timeout), (qp_state::RTS, end.number(), 14));
    assert_eq!((made.qp_type, made.sq_sig_all, made.cap.max_recv_wr), (QPT_RC, 1, 10));
    let error = ibv_qp_attr { qp_state: qp_state::ERR, ..ibv_qp_attr::default() };
    assert_eq!(end.modify(error, m::STATE), 0);
    assert_eq!(end.statuses(1), [(1, wc::FLUSHED)]);
    let state = c!((*end.qp.cast::<abi::ibv_qp_ex>()).state);
    assert_eq!(state, qp_state::ERR);
}

#[test]
fn a_device_outlives_its_list() {
    let end = End::new(&networked());
    let name = c!((end.verbs.ibv_get_device_name)((*end.context).device));
    assert_eq!(c!(CStr::from_ptr(name)), c"emu0");
}
