//! Tests memory of another engine, on the stand-in's device.
#![expect(unsafe_code, reason = "grants what the safe API would refuse")]

use std::time::{Duration, Instant};

use dma_core::{
    Access, BufferMut, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, Export, MemoryRequest,
    Outcome, Queue, QueueOptions, Segment, Window,
};

use super::rights::{keys, read, register};
use rdma_emu::{Nic, wc};

use crate::import::id_of;
use crate::queue_pairs::QueuePairs;
use crate::region::keys as region_keys;
use crate::tests::open::Open as _;
use crate::{RdmaEngine, RdmaOptions};

pub(super) const SOON: Duration = Duration::from_secs(60);

pub(super) fn exported(engine: &RdmaEngine, len: usize, rights: Access) -> (Window, Export) {
    let window = engine.allocate_window(&MemoryRequest::new(len).exportable(rights)).unwrap();
    let export = window.export(rights).unwrap();
    (window, export)
}

fn filled(engine: &RdmaEngine, len: usize, seed: u8) -> BufferMut {
    let mut buffer = engine.allocate(len).unwrap();
    buffer.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(7) ^ seed);
    buffer
}

fn bytes_of(window: &Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.read_at(0, &mut bytes).unwrap();
    bytes
}

fn open_queue(engine: &RdmaEngine) -> Queue {
    engine.open_queue(&QueueOptions::new()).unwrap()
}

/// Opens two engines on one network, like two hosts.
fn hosts() -> (Nic, RdmaEngine, RdmaEngine) {
    let nic = Nic::default();
    let (here, there) = (nic.open(), nic.open());
    (nic, here, there)
}

#[test]
fn bytes_travel_both_ways_and_between_two_peers() {
    let (nic, here, there) = hosts();
    let other = nic.open();
    let (near, export) = exported(&there, 300_000, Access::all());
    let (far, second) = exported(&other, 300_000, Access::all());
    let queue = open_queue(&here);
    let (a, b) = (here.import(export.descriptor()).unwrap(), here.import(second.descriptor()).unwrap());
    let sent = filled(&here, 300_000, 5);
    let (sent, a) = queue.copy(sent, a).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&near), sent[..]);
    // Both memories belong to peers, so the bytes pass through this host in pieces.
    let (_, b) = queue.copy(a, b).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&far), sent[..]);
    let (_, got) = queue.copy(b, here.allocate(300_000).unwrap()).unwrap().wait().unwrap();
    assert_eq!(got[..], sent[..]);
    drop((queue, got, sent, export, second, near, far, here, there, other));
    assert_eq!(nic.state().objects, 0, "objects of the library were not destroyed");
}

/// A write's completion does not prove that the bytes arrived, so each chain that ends with a write is
/// followed by a read.
#[test]
fn writes_are_proven_by_a_read() {
    let (nic, here, there) = hosts();
    let (near, export) = exported(&there, 4096, Access::WRITE);
    let remote = here.import(export.descriptor()).unwrap();
    let queue = open_queue(&here);
    let copy = || queue.copy(filled(&here, 64, 1), remote.slice(..64)).unwrap().wait().unwrap();
    copy();
    nic.state().chains.clear();
    nic.state().flags.clear();
    copy();
    assert_eq!(nic.state().chains, [2]);
    assert_eq!(nic.state().flags, [0, crate::verbs::SEND_SIGNALED]);
    // The write succeeded, but the read after it failed, so it is unknown if the bytes arrived.
    nic.state().statuses.extend([0, wc::NO_ANSWER]);
    let failed = queue.copy(filled(&here, 64, 2), remote.slice(..64)).unwrap().wait().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::DeviceFault, "{failed}");
    // The link is connected again.
    copy();
    assert_eq!(bytes_of(&near)[..64], filled(&here, 64, 1)[..]);
}

/// If the queue pair for an import cannot be made, copies of other memory continue.
#[test]
fn a_link_that_cannot_be_made_leaves_the_others() {
    let (nic, here, there) = hosts();
    let (a_near, a_export) = exported(&there, 64, Access::all());
    let (b_near, b_export) = exported(&there, 64, Access::all());
    let (a, b) = (here.import(a_export.descriptor()).unwrap(), here.import(b_export.descriptor()).unwrap());
    let queue = open_queue(&here);
    let read = |from: &Window| {
        queue.copy(from.clone(), here.allocate(64).unwrap()).unwrap().wait().map(|(_, got)| got[0])
    };
    a_near.write_at(0, &[1; 64]).unwrap();
    b_near.write_at(0, &[2; 64]).unwrap();
    for relays in [false, true] {
        assert_eq!(read(&a).unwrap(), 1);
        nic.state().errors.insert("create_qp", libc::ENOMEM);
        let kind = if relays {
            queue.copy(a.clone(), b.clone()).unwrap().wait().unwrap_err().kind()
        } else {
            read(&b).unwrap_err().kind()
        };
        assert_eq!(kind, ErrorKind::OutOfResources);
        let (_, local) =
            queue.copy(filled(&here, 64, 3), here.allocate(64).unwrap()).unwrap().wait().unwrap();
        assert_eq!(local[..], filled(&here, 64, 3)[..]);
        assert_eq!(read(&a).unwrap(), 1);
        assert_eq!(read(&b).unwrap_err().kind(), ErrorKind::OutOfResources);
        assert_eq!(read(&a).unwrap(), 1);
        nic.state().errors.clear();
    }
    assert_eq!(read(&b).unwrap(), 2);
    queue.copy(a, b).unwrap().wait().unwrap();
    assert_eq!(bytes_of(&b_near), [1; 64]);
}

#[test]
fn revoked_memory_is_reported_and_the_exporter_keeps_its_bytes() {
    let (_nic, here, there) = hosts();
    let (near, export) = exported(&there, 4096, Access::all());
    let remote = here.import(export.descriptor()).unwrap();
    let queue = open_queue(&here);
    let (_, remote) = queue.copy(filled(&here, 4096, 1), remote).unwrap().wait().unwrap();
    export.revoke(Duration::from_secs(60)).unwrap();
    for round in 0..3 {
        let late = queue.copy(filled(&here, 4096, 2), remote.clone()).unwrap().wait().unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Revoked, "round {round}: {late}");
    }
    assert_eq!(bytes_of(&near), filled(&here, 4096, 1)[..]);
    // Copies within this host continue.
    queue.copy(filled(&here, 64, 3), here.allocate(64).unwrap()).unwrap().wait().unwrap();
}

#[test]
fn an_exporter_that_is_gone_is_reported_in_bounded_time() {
    let (_nic, here, there) = hosts();
    let (near, export) = exported(&there, 4096, Access::all());
    let descriptor = export.descriptor().clone();
    let remote = here.import(&descriptor).unwrap();
    let queue = open_queue(&here);
    let (_, remote) = queue.copy(filled(&here, 4096, 1), remote).unwrap().wait().unwrap();
    // Memory that is allocated afterwards may have the addresses of the exporter's freed memory.
    drop((export, near, there));
    // The first copy finds that the queue pair does not answer or that the memory is gone. The next one finds
    // that the service does not answer either.
    let first = queue.copy(filled(&here, 4096, 1), remote.clone()).unwrap().wait().unwrap_err();
    assert!(matches!(first.kind(), ErrorKind::DeviceFault | ErrorKind::Revoked), "{first}");
    let begun = Instant::now();
    let second = queue.copy(filled(&here, 4096, 1), remote).unwrap().wait().unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Revoked, "{second}");
    assert_eq!(here.import(&descriptor).unwrap_err().kind(), ErrorKind::Revoked);
    assert!(begun.elapsed() < SOON);
}

/// A peer reaches its export, but no other memory of the exporter, although it knows all keys.
#[test]
fn the_device_confines_a_peer_to_its_export() {
    let (_nic, here, there) = hosts();
    let (_window, export) = exported(&there, 4096, Access::READ);
    let (_other_window, other) = exported(&there, 4096, Access::all());
    let (remote, beside) =
        (here.import(export.descriptor()).unwrap(), here.import(other.descriptor()).unwrap());
    let import_of = |window: &Window| here.inner.import(id_of(window.region().as_raw().info().key)).unwrap();
    let (mine, theirs) = (import_of(&remote), import_of(&beside).grant);
    let private = there.allocate_raw(&MemoryRequest::new(4096)).unwrap();
    let private = private.info();
    let mut pair = QueuePairs::open(&here.inner.device, 4).unwrap();
    let mut target = vec![3_u8; 4096];
    let region = register(&here.inner.device, &mut target, Access::all());
    let to = (target.as_mut_ptr(), keys(region).0);
    let granted = (mine.grant.addr as *const u8, mine.grant.rkey);
    for (name, from, status) in [
        ("its export", granted, 0),
        ("another export", (theirs.addr as *const u8, theirs.rkey), wc::REMOTE_ACCESS),
        (
            "the exporter's own memory",
            (private.addr.as_ptr().cast_const(), region_keys(private.key).1),
            wc::REMOTE_ACCESS,
        ),
    ] {
        if !pair.use_link(&mine, 4).unwrap() {
            let mut connecting = pair.connect().unwrap();
            let begun = Instant::now();
            let agreed = loop {
                assert!(begun.elapsed() < SOON, "no connection");
                if let Some(agreed) = connecting.outcome() {
                    break agreed.unwrap();
                }
                std::thread::yield_now();
            };
            pair.join(agreed).unwrap();
        }
        assert_eq!(read(&pair, from, to, 64), status, "{name}");
        if status != 0 {
            assert!(pair.quiesce());
        }
    }
    drop(pair);
    assert!(here.inner.device.deregister(region));
}

#[test]
fn the_device_refuses_what_was_not_granted() {
    let (_nic, here, there) = hosts();
    let (near, export) = exported(&there, 4096, Access::READ);
    let remote = here.import(export.descriptor()).unwrap();
    let mut queue = here.open_queue_raw(&QueueOptions::new()).unwrap();
    let local = filled(&here, 4096, 1);
    let window = local.share();
    let mine = *window.region().as_raw().info();
    let granted = *remote.region().as_raw().info();
    let beyond = Segment { addr: granted.addr.offset(4096), ..granted.segment(0, 64) };
    for (name, src, dst, kind) in [
        ("a write without the right", mine.segment(0, 64), granted.segment(0, 64), ErrorKind::AccessDenied),
        ("a read beyond the end", beyond, mine.segment(0, 64), ErrorKind::Revoked),
    ] {
        // SAFETY: the memory belongs to this test, and the device refuses the request.
        unsafe { queue.submit(&[Descriptor::copy(1, src, dst)]) }.unwrap();
        queue.flush();
        let mut completions = [Completion::done(0)];
        let begun = Instant::now();
        while queue.poll(&mut completions) == 0 {
            assert!(begun.elapsed() < SOON, "{name} does not end");
        }
        assert_eq!(completions[0].outcome, Outcome::Failed(kind), "{name}");
    }
    assert_eq!(bytes_of(&near), [0; 4096]);
}

#[test]
fn a_port_without_an_address_exports_by_the_option() {
    let nic = Nic::with(|state| state.link_layer = 1);
    let engine = nic.open();
    let request = MemoryRequest::new(64).exportable(Access::READ);
    let error = engine.allocate_window(&request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hint().contains("listen="), "{error}");
    // No interface of this machine has this address (RFC 5737).
    let elsewhere = RdmaOptions::new().with_listen("192.0.2.1:0".parse().unwrap());
    let window = nic.open_with(&elsewhere).unwrap().allocate_window(&request).unwrap();
    let error = window.export(Access::READ).unwrap_err();
    assert!(error.hint().contains("`listen`"), "{error}");
}

/// If a later write fails, an earlier write that succeeded is not proven, so it is not reported as done.
#[test]
fn writes_before_a_failure_are_aborted() {
    let (nic, here, there) = hosts();
    let (_near, export) = exported(&there, 64, Access::WRITE);
    let remote = here.import(export.descriptor()).unwrap();
    let local = filled(&here, 64, 1).share();
    let mut queue = here.open_queue_raw(&QueueOptions::new()).unwrap();
    let of = |window: &Window| window.region().as_raw().info().segment(0, 64);
    let (src, dst) = (of(&local), of(&remote));
    nic.state().statuses.extend([0, wc::NO_ANSWER]);
    // SAFETY: the windows outlive the queue, and all copies write the same bytes.
    unsafe { queue.submit(&[0, 1, 2].map(|token| Descriptor::copy(token, src, dst))) }.unwrap();
    queue.flush();
    let (mut ended, begun) = (Vec::new(), Instant::now());
    while ended.len() < 3 {
        let mut completions = [Completion::done(9); 3];
        let n = queue.poll(&mut completions);
        ended.extend(completions[..n].iter().map(|c| (c.token, c.outcome)));
        assert!(begun.elapsed() < SOON, "{ended:?}");
    }
    let failed = Outcome::Failed(ErrorKind::DeviceFault);
    assert_eq!(ended, [(0, Outcome::Aborted), (1, failed), (2, Outcome::Aborted)]);
}
