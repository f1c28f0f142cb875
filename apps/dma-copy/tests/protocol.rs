//! Tests the protocol of `dma-copy`: its encoding, faulty channels, and peers that violate it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dma::prelude::*;
use proptest::prelude::*;

mod impostor;
mod pair;

use impostor::protocol::encoding::DecodeError;
use impostor::protocol::{
    Checksum, Data, Digest, Export, Hello, MAX_MODE, MAX_SIZE, MAX_TEXT, Message, Role, Step,
};
use impostor::{Impostor, encoded, filled, hello, last, xxh3_of_nothing};
use pair::{Ended, PARTIAL, Place, Side, assert_same};

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..=MAX_SIZE, 0..100_u64, Just(MAX_SIZE)]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::Host), Just(Role::Dpu)];
    let checksum = prop_oneof![Just(Checksum::None), Just(Checksum::Xxh3)];
    let step = prop_oneof![Just(Step::Starting), Just(Step::Moving), Just(Step::Waiting)];
    let hello = (
        role,
        proptest::option::of(size()),
        checksum,
        any::<bool>(),
        any::<bool>(),
        size(),
        size(),
        (0..=MAX_MODE, any::<u32>()),
    )
        .prop_map(|(role, file, checksum, resume, stream, window, chunk, (mode, following))| {
            let mode = if file.is_some() { mode } else { 0 };
            Message::Hello(Hello { role, file, checksum, resume, stream, window, chunk, mode, following })
        });
    let export = (any::<u64>(), size(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..300))
        .prop_map(|(address, len, block, descriptor)| {
            Message::Export(Export { address, len, block, descriptor })
        });
    let digest = any::<Digest>;
    prop_oneof![
        hello,
        export,
        (size(), digest()).prop_map(|(len, digest)| Message::Resume { len, digest }),
        size().prop_map(|from| Message::ResumeAnswer { from }),
        (any::<u64>(), any::<u32>(), any::<u32>(), digest())
            .prop_map(|(seq, slot, len, digest)| Message::Filled { seq, slot, len, digest }),
        any::<u32>().prop_map(|slot| Message::Freed { slot }),
        size().prop_map(|len| Message::Hole { len }),
        (size(), any::<u64>(), digest()).prop_map(|(total, retries, digest)| Message::End {
            total,
            retries,
            digest
        }),
        (size(), any::<u64>()).prop_map(|(total, retries)| Message::Status { total, retries }),
        any::<u64>().prop_map(|done| Message::Progress { done }),
        proptest::collection::vec(any::<u8>(), 1..300).prop_map(|bytes| Message::Data(Data(bytes))),
        (step, "\\PC{0,60}").prop_map(|(step, text)| Message::Abort { step, text }),
    ]
}

proptest! {
    #[test]
    fn encoded_messages_decode_to_themselves(message in message()) {
        let bytes = encoded(&message);
        prop_assert_eq!(Message::decode(&bytes), Ok(message));
        // Neither a prefix nor an extension of a message decodes.
        for end in 0..bytes.len() {
            prop_assert!(Message::decode(&bytes[..end]).is_err());
        }
        prop_assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), Err(DecodeError::TooLong(1)));
    }

    #[test]
    fn every_input_is_a_message_or_an_error(kind in 0..14_u8, rest in proptest::collection::vec(any::<u8>(), 0..120)) {
        let bytes = [&[kind], &rest[..]].concat();
        match Message::decode(&bytes) {
            Ok(message) => prop_assert_eq!(encoded(&message), bytes),
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    let text = "ä".repeat(MAX_TEXT);
    match Message::decode(&encoded(&Message::Abort { step: Step::Moving, text })) {
        Ok(Message::Abort { text, .. }) => assert_eq!(text, "ä".repeat(MAX_TEXT / 2)),
        other => panic!("{other:?}"),
    }
}

/// A fault of the channel at one message.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The channel breaks before the message.
    Cut,
    /// The channel breaks within the message.
    Tear,
    /// No more messages arrive, and the channel stays open.
    Stall,
    Drop,
    Repeat,
    /// The message arrives after the next message.
    Swap,
    /// One bit is flipped.
    Flip(usize, u8),
}

/// Forwards messages from one side to the other, with a fault at one message.
fn carry(mut from: UnixStream, mut to: UnixStream, fault: Option<(usize, Fault)>, count: &AtomicUsize) {
    let mut held: Option<Vec<u8>> = None;
    let mut stalled = false;
    loop {
        let mut len = [0; 4];
        if from.read_exact(&mut len).is_err() {
            break;
        }
        let mut frame = vec![0; 4 + u32::from_le_bytes(len) as usize];
        frame[..4].copy_from_slice(&len);
        if from.read_exact(&mut frame[4..]).is_err() {
            break;
        }
        let number = count.fetch_add(1, Ordering::Relaxed);
        let mut frames = vec![frame];
        match fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault) {
            None => frames.extend(held.take()),
            Some(Fault::Cut) => break,
            Some(Fault::Tear) => {
                let _ = to.write_all(&frames[0][..frames[0].len() / 2]);
                break;
            }
            Some(Fault::Stall) => stalled = true,
            Some(Fault::Drop) => frames.clear(),
            Some(Fault::Repeat) => frames.push(frames[0].clone()),
            Some(Fault::Swap) => held = frames.pop(),
            Some(Fault::Flip(at, bit)) => {
                let at = 4 + at % (frames[0].len() - 4);
                frames[0][at] ^= 1 << (bit % 8);
            }
        }
        if !stalled && frames.iter().any(|frame| to.write_all(frame).is_err()) {
            break;
        }
    }
    if !stalled {
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
    }
}

/// Copies over a channel with a fault in the direction `faulty`, and checks that success and failure are
/// reported correctly. Returns the results of the sender and the receiver, and the numbers of messages from
/// the host and from the DPU.
fn copy_with(
    from: Side,
    engine: &str,
    len: usize,
    faulty: Side,
    fault: Option<(usize, Fault)>,
) -> (Ended, Ended, [usize; 2]) {
    let place = Place::new();
    place.file("src", len);
    let listener = UnixListener::bind(place.path("proxy")).expect("a socket");
    // The timeout is short, because many faults end by it. On a slow machine it may expire without a fault.
    let timeout = if fault.is_some() { "0.3" } else { "600" };
    let args = format!("-e {engine} --window 16K --chunk 4K --timeout {timeout}");
    let file = |side| if side == from { "src" } else { "dst" };
    let mut dpu = place.start(Side::Dpu, &format!("-f {} -c unix:dpu {args}", file(Side::Dpu)));
    let to_dpu = loop {
        if let Ok(stream) = UnixStream::connect(place.path("dpu")) {
            break stream;
        }
        // The machine was too slow: try again.
        if dpu.child().try_wait().expect("a child").is_some() {
            return copy_with(from, engine, len, faulty, fault);
        }
    };
    let host = place.start(Side::Host, &format!("-f {} -c unix:proxy {args}", file(Side::Host)));
    let (to_host, _) = listener.accept().expect("the host connects");
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let carriers = [
        (to_host.try_clone(), to_dpu.try_clone(), Side::Host),
        (to_dpu.try_clone(), to_host.try_clone(), Side::Dpu),
    ]
    .map(|(from, to, side)| {
        let (from, to) = (from.expect("cloned"), to.expect("cloned"));
        let (counts, fault) = (Arc::clone(&counts), fault.filter(|_| side == faulty));
        std::thread::spawn(move || carry(from, to, fault, &counts[usize::from(side == Side::Dpu)]))
    });
    let ended = [host.end(), dpu.end()];
    for socket in [to_host, to_dpu] {
        let _ = socket.shutdown(std::net::Shutdown::Both);
    }
    for carrier in carriers {
        carrier.join().expect("carried");
    }
    for ended in &ended {
        assert!(matches!(ended.status.code(), Some(0 | 1)), "{fault:?}: {ended:?}");
        assert_eq!(
            ended.err.trim_end().lines().count(),
            usize::from(!ended.status.success()),
            "{fault:?}: {ended:?}"
        );
    }
    let [host, dpu] = ended;
    let (sender, receiver) = if from == Side::Host { (host, dpu) } else { (dpu, host) };
    // The file exists if and only if the receiver succeeded. The sender succeeds only if the file exists.
    assert_eq!(place.path("dst").exists(), receiver.status.success(), "{fault:?}: {receiver:?}");
    assert!(!place.path(PARTIAL).exists(), "{fault:?}");
    assert!(receiver.status.success() || !sender.status.success(), "{fault:?}: {sender:?} {receiver:?}");
    if receiver.status.success() {
        assert_same(&place.path("src"), &place.path("dst"));
    }
    (sender, receiver, [&counts[0], &counts[1]].map(|count| count.load(Ordering::Relaxed)))
}

/// Runs jobs on several threads, because most of their time is spent waiting.
fn on_threads<T: Send>(jobs: Vec<T>, job: impl Fn(T) + Sync) {
    let jobs = std::sync::Mutex::new(jobs);
    std::thread::scope(|scope| {
        // Each job needs about fifteen descriptors.
        for _ in 0..10 {
            scope.spawn(|| {
                while let Some(next) = { jobs.lock().expect("no job panicked").pop() } {
                    job(next);
                }
            });
        }
    });
}

#[test]
fn a_channel_that_breaks_or_stalls_at_any_message_ends_both_sides() {
    const LEN: usize = 20_000;
    let mut jobs = Vec::new();
    for (from, engine) in
        Side::BOTH.into_iter().flat_map(|from| ["cpu", "stream"].map(|engine| (from, engine)))
    {
        let (sender, receiver, counts) = copy_with(from, engine, LEN, Side::Host, None);
        sender.copied();
        receiver.copied();
        assert!(counts.iter().all(|count| *count >= 4), "{counts:?}");
        for (side, count) in Side::BOTH.into_iter().zip(counts) {
            for at in 0..count {
                jobs.extend(
                    [Fault::Cut, Fault::Tear, Fault::Stall].map(|fault| (from, engine, side, at, fault)),
                );
            }
        }
    }
    on_threads(jobs, |(from, engine, side, at, fault)| {
        let (sender, receiver, _) = copy_with(from, engine, LEN, side, Some((at, fault)));
        // If the first message is lost, the side that needs it cannot succeed. If a later message is lost,
        // the side may succeed, because this may be the last message.
        let told = if side == from { &receiver } else { &sender };
        assert!(
            !told.status.success() || matches!(fault, Fault::Cut | Fault::Tear | Fault::Stall if at > 0),
            "{told:?}"
        );
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() })]

    /// A Unix socket has no such faults, but a faulty peer may cause them.
    #[test]
    fn messages_that_are_lost_repeated_mixed_up_or_changed_do_no_harm(
        host_sends in any::<bool>(),
        engine in prop_oneof![Just("cpu"), Just("stream")],
        of_host in any::<bool>(),
        len in prop_oneof![Just(0_usize), 1..60_000_usize],
        at in 0..8_usize,
        fault in prop_oneof![
            Just(Fault::Drop),
            Just(Fault::Repeat),
            Just(Fault::Swap),
            (0..80_usize, 0..8_u8).prop_map(|(at, bit)| Fault::Flip(at, bit)),
            (0..80_usize, 0..8_u8).prop_map(|(at, bit)| Fault::Flip(at, bit)),
        ],
    ) {
        let side = |host| if host { Side::Host } else { Side::Dpu };
        copy_with(side(host_sends), engine, len, side(of_host), Some((at, fault)));
    }
}

/// The error of a DPU whose host goes on without progress.
const NO_PROGRESS: &str = "made no progress for 1 s";

/// Runs a DPU that receives from an impostor, which exports real memory and then runs `then`. The DPU must
/// fail with all of `words`.
fn dpu_against(size: u64, words: &[&str], then: impl FnOnce(&mut Impostor)) {
    let place = Place::new();
    let args = "-f dst --window 16K --chunk 4K --checksum none -e cpu";
    let (dpu, mut hold) = place.hold(Side::Dpu, args, "agreed");
    let mut impostor = Impostor::connect(place.dir.path());
    impostor.say(&Message::Hello(hello(Role::Host, Some(size))));
    assert!(matches!(impostor.hear(), Message::Hello(Hello { role: Role::Dpu, file: None, .. })));
    assert_eq!(impostor.hear(), Message::Resume { len: 0, digest: xxh3_of_nothing() });
    impostor.say(&Message::ResumeAnswer { from: 0 });
    let engine = dma::open("cpu").expect("an engine");
    let window =
        engine.allocate_window(&MemoryRequest::new(16 << 10).exportable(Access::READ)).expect("memory");
    let export = window.export(Access::READ).expect("exported");
    let (address, descriptor) = (window.region().as_raw().info().addr.0, export.descriptor().to_bytes());
    impostor.say(&Message::Export(Export { address, len: 16 << 10, block: 8192, descriptor }));
    hold.wait("agreed");
    hold.answer(if words.contains(&NO_PROGRESS) { "peer=1" } else { "" });
    then(&mut impostor);
    dpu.end().failed(words);
    assert!(matches!(last(&mut impostor), Some(Message::Abort { .. })), "it says why");
    assert!(place.names().is_empty() || place.names() == ["socket".to_owned()].into(), "{:?}", place.names());
}

#[test]
fn a_dpu_checks_every_number_of_its_host() {
    let not_kept = "violates the protocol";
    // The file has two whole blocks and one block of 100 bytes.
    let size = 2 * 8192 + 100;
    for (words, messages) in [
        (&["block 0 of 8191 bytes"][..], vec![filled(0, 0, 8191)]),
        (&["block 0 of 8193 bytes"], vec![filled(0, 0, 8193)]),
        (&["block 0 of 4294967295 bytes"], vec![filled(0, 0, u32::MAX)]),
        (&["in slot 2"], vec![filled(0, 2, 8192)]),
        (&["in slot 4294967295"], vec![filled(0, u32::MAX, 8192)]),
        (&["block 1 of"], vec![filled(1, 0, 8192)]),
        (&["when byte 8192 was due"], vec![filled(0, 0, 8192), filled(0, 1, 8192)]),
        (&["hole of 8191 bytes at byte 0"], vec![Message::Hole { len: 8191 }]),
        (&["hole of 0 bytes"], vec![Message::Hole { len: 0 }]),
        (&["hole of 24576 bytes at byte 0"], vec![Message::Hole { len: 3 * 8192 }]),
        (
            &["hole of 9223372036854775807 bytes at byte 8192"],
            vec![filled(0, 0, 8192), Message::Hole { len: MAX_SIZE }],
        ),
        (&["two holes in a row"], vec![Message::Hole { len: 8192 }, Message::Hole { len: 8192 }]),
        (&["it ended after 0 bytes"], vec![Message::End { total: size, retries: 0, digest: 0 }]),
        (
            &["it ended after 16384 bytes"],
            vec![Message::Hole { len: 16384 }, Message::End { total: 16384, retries: 0, digest: 0 }],
        ),
        (&["it sent Freed at the wrong time"], vec![Message::Freed { slot: 0 }]),
        (&["it sent Hello at the wrong time"], vec![Message::Hello(hello(Role::Host, Some(1)))]),
        (&["it sent Status at the wrong time"], vec![Message::Status { total: size, retries: 0 }]),
    ] {
        dpu_against(size, &[words, &[not_kept]].concat(), |impostor| {
            messages.iter().for_each(|message| impostor.say(message));
        });
    }
    // A slot is filled again after the DPU freed it.
    dpu_against(size, &["it ended after"], |impostor| {
        for (seq, slot, len) in [(0, 0, 8192), (1, 1, 8192), (2, 0, 100)] {
            impostor.say(&filled(seq, slot, len));
            assert_eq!(impostor.hear(), Message::Freed { slot });
        }
        impostor.say(&Message::End { total: 7, retries: 0, digest: 0 });
    });
    dpu_against(size, &["the digest of the bytes sent"], |impostor| {
        for (seq, slot, len) in [(0, 0, 8192), (1, 1, 8192), (2, 0, 100)] {
            impostor.say(&filled(seq, slot, len));
            assert_eq!(impostor.hear(), Message::Freed { slot });
        }
        impostor.say(&Message::End { total: size, retries: 0, digest: 1 });
    });
    dpu_against(size, &["unknown kind 99"], |impostor| impostor.say_bytes(&[99]));
    dpu_against(size, &["it ends in the middle"], |impostor| impostor.say_bytes(&[5, 0]));
    dpu_against(size, &["a message of 4294967295 bytes"], |impostor| {
        let _ = impostor.0.write_all(&[0xff; 100]);
    });
    // Heartbeats without progress do not count.
    dpu_against(size, &[NO_PROGRESS], |impostor| {
        let mut stream = impostor.0.try_clone().expect("cloned");
        std::thread::spawn(move || {
            let bytes = encoded(&Message::Progress { done: 7 });
            let frame = [&(bytes.len() as u32).to_le_bytes(), &bytes[..]].concat();
            while stream.write_all(&frame).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    });
}

#[test]
fn a_hosts_reason_is_shown_without_control_characters() {
    let place = Place::new();
    let dpu = place.start(Side::Dpu, "-f dst");
    let mut impostor = Impostor::connect(place.dir.path());
    impostor.say(&Message::Abort { step: Step::Reading, text: "\u{1b}[2Jgone\nfor good".to_owned() });
    dpu.end().failed(&["the host gave up (reading the file): ?[2Jgone?for good"]);
}

#[test]
fn the_first_message_is_checked() {
    let not_ours = |bytes: &[u8], words: &[&str]| {
        let place = Place::new();
        let dpu = place.start(Side::Dpu, "-f dst");
        let mut impostor = Impostor::connect(place.dir.path());
        impostor.say_bytes(bytes);
        dpu.end().failed(words);
    };
    let good = encoded(&Message::Hello(hello(Role::Host, Some(1))));
    let mut newer = good.clone();
    newer[5] = 6;
    not_ours(&newer, &["uses version 6", "the same release"]);
    let mut other = good;
    other[1] = b'X';
    not_ours(&other, &["the other program is not dma-copy"]);
    not_ours(&encoded(&Message::Hello(hello(Role::Dpu, Some(1)))), &["both sides have the role DPU"]);
    for (window, chunk) in [(0, 4096), (8191, 4096), (MAX_SIZE, 4096), (1 << 20, 0), (1 << 20, MAX_SIZE)] {
        let hello = Hello { window, chunk, ..hello(Role::Host, Some(1)) };
        not_ours(&encoded(&Message::Hello(hello)), &["requests a window of"]);
    }
    not_ours(&encoded(&Message::Freed { slot: 0 }), &["Freed at the wrong time"]);
}

#[test]
fn a_dpu_checks_what_it_imports() {
    let engine = dma::open("cpu").expect("an engine");
    let window = engine.allocate_window(&MemoryRequest::new(8192).exportable(Access::READ)).expect("memory");
    let export = window.export(Access::READ).expect("exported");
    let good = export.descriptor();
    let forged = dma::ExportDescriptor::new("cpu", Access::READ, 16 << 10, good.native());
    let forged = forged.expect("well formed").to_bytes();
    let address = window.region().as_raw().info().addr.0;
    for (export, words) in [
        (Export { address, len: 8192, block: 8192, descriptor: good.to_bytes() }, "agreed on 16384"),
        (Export { address, len: 16 << 10, block: 8192, descriptor: good.to_bytes() }, "its descriptor 8192"),
        (Export { address, len: 16 << 10, block: 4096, descriptor: forged.clone() }, "in blocks of 4096"),
        // The exporter grants only 8192 bytes, although the descriptor says 16384.
        (
            Export { address, len: 16 << 10, block: 8192, descriptor: forged },
            "grants 8192 bytes, and 16384 were expected",
        ),
        (Export { address, len: 16 << 10, block: 8192, descriptor: vec![1; 100] }, "descriptor is invalid"),
    ] {
        let place = Place::new();
        let dpu = place.start(Side::Dpu, "-f dst --window 16K --chunk 4K -e cpu");
        let mut impostor = Impostor::connect(place.dir.path());
        impostor.say(&Message::Hello(hello(Role::Host, Some(100_000))));
        impostor.say(&Message::ResumeAnswer { from: 0 });
        impostor.say(&Message::Export(export));
        dpu.end().failed(&[words]);
        assert!(fs::read_dir(place.dir.path()).expect("a directory").next().is_none());
    }
    for (answer, words) in
        [(1, "at an offset that was not offered"), (8192, "at an offset that was not offered")]
    {
        let place = Place::new();
        let dpu = place.start(Side::Dpu, "-f dst --resume");
        let mut impostor = Impostor::connect(place.dir.path());
        impostor.say(&Message::Hello(hello(Role::Host, Some(100_000))));
        impostor.say(&Message::ResumeAnswer { from: answer });
        dpu.end().failed(&[words]);
    }
}

/// Runs a host that receives from an impostor.
#[test]
fn a_host_checks_every_number_of_its_dpu() {
    let size = 2 * 8192 + 100;
    for (words, messages) in [
        (&["block 0 of 8193 bytes"][..], vec![filled(0, 0, 8193)]),
        (&["in slot 2"], vec![filled(0, 2, 8192)]),
        (&["block 1 of"], vec![filled(1, 0, 8192)]),
        (&["it ended after 0 bytes"], vec![Message::End { total: size, retries: 0, digest: 0 }]),
        (&["hole of 1 byte"], vec![Message::Hole { len: 1 }]),
        (&["hole of 24576 bytes"], vec![Message::Hole { len: 3 * 8192 }]),
        (
            &["the digest of the bytes sent"],
            vec![
                filled(0, 0, 8192),
                filled(1, 1, 8192),
                filled(2, 0, 100),
                Message::End { total: size, retries: 0, digest: 1 },
            ],
        ),
        (&["Freed at the wrong time"], vec![Message::Freed { slot: 0 }]),
    ] {
        let place = Place::new();
        let listener = UnixListener::bind(place.path("socket")).expect("a socket");
        let host = place.start(Side::Host, "-f dst --window 16K --chunk 4K --checksum none -e cpu");
        let mut impostor = Impostor(listener.accept().expect("it connects").0);
        impostor.say(&Message::Hello(hello(Role::Dpu, Some(size))));
        assert!(matches!(impostor.hear(), Message::Hello(_)));
        assert!(matches!(impostor.hear(), Message::Resume { .. }));
        impostor.say(&Message::ResumeAnswer { from: 0 });
        match impostor.hear() {
            Message::Export(Export { len: 16_384, block: 8192, descriptor, .. }) => {
                let granted = dma::ExportDescriptor::from_bytes(&descriptor).expect("a descriptor").rights();
                assert_eq!(granted, Access::WRITE, "no more than it takes to receive");
            }
            other => panic!("{other:?}"),
        }
        messages.iter().for_each(|message| impostor.say(message));
        host.end().failed(&[words, &["violates the protocol"]].concat());
        assert_eq!(place.names(), ["socket".to_owned()].into(), "nothing is left behind");
    }
    // When a host sends, the DPU can free only slots that it has.
    let place = Place::new();
    place.file("src", 100_000);
    let listener = UnixListener::bind(place.path("socket")).expect("a socket");
    let host = place.start(Side::Host, "-f src --window 16K --chunk 4K --checksum none -e cpu");
    let mut impostor = Impostor(listener.accept().expect("it connects").0);
    impostor.say(&Message::Hello(hello(Role::Dpu, None)));
    impostor.say(&Message::Resume { len: 0, digest: 0 });
    let descriptor = loop {
        if let Message::Export(Export { descriptor, .. }) = impostor.hear() {
            break descriptor;
        }
    };
    let granted = dma::ExportDescriptor::from_bytes(&descriptor).expect("a descriptor").rights();
    assert_eq!(granted, Access::READ, "no more than it takes to send");
    while !matches!(impostor.hear(), Message::Filled { seq: 0, .. }) {}
    impostor.say(&Message::Freed { slot: 0 });
    impostor.say(&Message::Freed { slot: 0 });
    impostor.say(&Message::Freed { slot: 0 });
    impostor.say(&Message::Freed { slot: 77 });
    host.end().failed(&["it freed slot", "which it does not have"]);
    // A Status whose length differs from the file's length is refused.
    let place = Place::new();
    place.file("src", 0);
    let listener = UnixListener::bind(place.path("socket")).expect("a socket");
    let host = place.start(Side::Host, "-f src --window 16K --chunk 4K --checksum none -e cpu");
    let mut impostor = Impostor(listener.accept().expect("it connects").0);
    impostor.say(&Message::Hello(hello(Role::Dpu, None)));
    impostor.say(&Message::Resume { len: 0, digest: xxh3_of_nothing() });
    while !matches!(impostor.hear(), Message::End { total: 0, .. }) {}
    impostor.say(&Message::Status { total: 1, retries: 0 });
    host.end().failed(&["it sent Status at the wrong time"]);
    let place = Place::new();
    place.file("src", 0);
    let dpu = place.start(Side::Dpu, "-f src --window 16K --chunk 4K --checksum none -e cpu");
    let mut impostor = Impostor::connect(place.dir.path());
    impostor.say(&Message::Hello(hello(Role::Host, None)));
    impostor.say(&Message::Resume { len: 0, digest: xxh3_of_nothing() });
    while !matches!(impostor.hear(), Message::End { total: 0, .. }) {}
    impostor.say(&Message::Status { total: 1, retries: 0 });
    dpu.end().failed(&["it sent Status at the wrong time"]);
}
