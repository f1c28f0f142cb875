//! Tests that the exporter's kernel or NIC refuses each request that exceeds a grant.
#![expect(unsafe_code, reason = "posts requests that the device must refuse")]

use std::sync::Arc;
use std::time::Instant;

use dma_core::{
    Access, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, Outcome, QueueOptions, Segment,
    Window,
};

use super::{Control, PATIENCE, open, queue};
use crate::RdmaEngine;
use crate::error::{REMOTE, kind, native};
use crate::import::{Import, id_of};
use crate::queue_pairs::QueuePairs;
use crate::tests::rights::{keys, register, request};
use crate::verbs::{WR_RDMA_READ, WR_RDMA_WRITE};
use rdma_emu::wc;

const LEN: usize = 4096;

fn import_of(engine: &RdmaEngine, window: &Window) -> Arc<Import> {
    engine.inner.import(id_of(window.region().as_raw().info().key)).expect("it is imported")
}

/// Connects the queue pair of an import, unless it is connected.
fn connect(pair: &mut QueuePairs, import: &Arc<Import>) {
    if pair.use_link(import, 4).expect("a queue pair") {
        return;
    }
    let mut connecting = pair.connect().expect("the connection begins");
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(agreed) = connecting.outcome() {
            return pair.join(agreed.expect("the exporter agrees")).expect("it is connected");
        }
        std::thread::yield_now();
    }
    panic!("no connection");
}

#[test]
#[ignore = "needs a second host: see the top of the file"]
fn importer_2_is_refused_all_that_was_not_granted() {
    let (engine, mut control) = (open(), Control::open());
    let mut import = |rights| {
        let window = engine.import(&control.export(LEN, rights)).expect("an import");
        (import_of(&engine, &window), window)
    };
    let ((readable, _a), (writable, _b)) = (import(Access::READ), import(Access::WRITE));
    let (both, _c) = import(Access::all());
    for number in 0..3 {
        control.tell(&format!("fill {number} {number}"));
    }
    let private = control.tell("private");
    let (addr, key) = private.split_at(8);
    let private = (
        u64::from_le_bytes(addr.try_into().expect("8 bytes")),
        u32::from_le_bytes(key.try_into().expect("4 bytes")),
    );
    let mut pair = QueuePairs::open(&engine.inner.device, 4).expect("a queue pair");
    let mut memory = vec![0x5a_u8; LEN];
    let region = register(&engine.inner.device, &mut memory, Access::all());
    let local = (memory.as_mut_ptr(), keys(region).0);

    let refused = wc::REMOTE_ACCESS;
    let (read, write) = (WR_RDMA_READ, WR_RDMA_WRITE);
    let at =
        |import: &Import, offset: i64| (import.grant.addr.wrapping_add_signed(offset), import.grant.rkey);
    let end = LEN as i64;
    let forged = |bit: u32| (readable.grant.addr, readable.grant.rkey ^ 1 << bit);
    let of_both = both.grant.rkey;
    let cases = [
        ("a read of the whole grant", &readable, read, at(&readable, 0), LEN, 0),
        ("a write of the whole grant", &writable, write, at(&writable, 0), LEN, 0),
        ("a write to memory that is read-only", &readable, write, at(&readable, 0), 64, wc::REMOTE_INVALID),
        ("a read of memory that is write-only", &writable, read, at(&writable, 0), 64, refused),
        ("a read beyond the end", &readable, read, at(&readable, end), 64, refused),
        ("a read across the end", &readable, read, at(&readable, end - 63), 64, refused),
        ("a read before the start", &readable, read, at(&readable, -64), 64, refused),
        ("a read across the start", &readable, read, at(&readable, -1), 64, refused),
        ("a write beyond the end", &writable, write, at(&writable, end), 64, refused),
        ("a write across the end", &writable, write, at(&writable, end - 63), 64, refused),
        ("a write before the start", &writable, write, at(&writable, -64), 64, refused),
        ("a forged key, with another last bit", &readable, read, forged(0), 64, refused),
        ("a forged key, with another index", &readable, read, forged(8), 64, refused),
        ("a read with the key of another protection domain", &readable, read, at(&both, 0), 64, refused),
        ("a write with the key of another protection domain", &writable, write, at(&both, 0), 64, refused),
        (
            "another domain's key for its own bytes",
            &readable,
            read,
            (readable.grant.addr, of_both),
            64,
            refused,
        ),
        ("memory that is not exported, by its own key", &readable, read, private, 64, refused),
        (
            "memory that is not exported, by the export's key",
            &readable,
            read,
            (private.0, readable.grant.rkey),
            64,
            refused,
        ),
    ];
    for (name, import, opcode, (addr, key), len, status) in cases {
        connect(&mut pair, import);
        let got = request(&pair, opcode, (addr as *const u8, key), local, len);
        assert_eq!(got, status, "{name}");
        let told = if got == 0 {
            "done".to_owned()
        } else {
            format!("{}, {:?}", native(got).name, kind(REMOTE + got))
        };
        println!("rights: {name}: {told}");
        assert!(got == 0 || pair.quiesce());
    }
    drop(pair);
    assert!(engine.inner.device.deregister(region));
    for (number, bytes) in
        [(0, super::pattern(LEN, 0)), (1, super::pattern(LEN, 0)), (2, super::pattern(LEN, 2))]
    {
        assert!(control.tell(&format!("bytes {number}")) == bytes, "bytes of export {number} changed");
    }
}

/// Refusals through a queue of the engine: the errors have the right kinds, and the queue recovers.
#[test]
#[ignore = "needs a second host: see the top of the file"]
fn importer_3_is_told_refusals_by_their_kind() {
    let (engine, mut control) = (open(), Control::open());
    let remote = engine.import(&control.export(LEN, Access::READ)).expect("an import");
    control.tell("fill 0 9");
    let local = super::filled(&engine, LEN, 1).share();
    let mut raw = engine.open_queue_raw(&QueueOptions::new()).expect("a queue");
    let (here, there) = (*local.region().as_raw().info(), *remote.region().as_raw().info());
    let beyond = |offset: isize| {
        let addr = dma_core::DeviceAddr(there.addr.0.wrapping_add_signed(offset as i64));
        Segment { addr, ..there.segment(0, 64) }
    };
    let (refused, denied) = (Outcome::Failed(ErrorKind::Revoked), Outcome::Failed(ErrorKind::AccessDenied));
    for (name, src, dst, outcome) in [
        ("a copy", there.segment(0, 64), here.segment(0, 64), Outcome::Done),
        ("a copy to memory that is read-only", here.segment(0, 64), there.segment(0, 64), denied),
        ("a copy from beyond the end", beyond(LEN as isize), here.segment(0, 64), refused),
        ("a copy from before the start", beyond(-64), here.segment(0, 64), refused),
    ] {
        // SAFETY: the memory belongs to this test, and the other host refuses access that was not granted.
        unsafe { raw.submit(&[Descriptor::copy(1, src, dst)]) }.expect("it is taken");
        raw.flush();
        let (mut completions, begun) = ([Completion::done(0)], Instant::now());
        while raw.poll(&mut completions) == 0 {
            assert!(begun.elapsed() < PATIENCE, "{name} does not end");
        }
        assert_eq!(completions[0].outcome, outcome, "{name}");
        println!("kinds: {name}: {:?}", completions[0].outcome);
    }
    drop(raw);
    // The errors after revocation: of the first copy, and of copies that connect again.
    let queue = queue(&engine);
    let copy =
        || queue.copy(remote.slice(..64), engine.allocate(64).expect("memory")).expect("it is taken").wait();
    copy().expect("a copy");
    control.tell("revoke 0");
    for round in 0..3 {
        let error = copy().expect_err("it is revoked");
        assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
        println!("kinds: copy {round} after revocation: {:?}: {error}", error.kind());
    }
    assert!(control.tell("bytes 0") == super::pattern(LEN, 9), "bytes of the export changed");
}
