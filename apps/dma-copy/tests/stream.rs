//! Tests `dma-copy --engine stream`, where blocks go through the channel.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

mod impostor;
mod pair;

use impostor::protocol::{Checksum, Data, Hello, MAX_DATA, Message, Role};
use impostor::{Impostor, filled, hello, last};
use pair::{LONG, PARTIAL, Place, Running, Side, assert_same, secret};
use test_support::free_port::free_port;
use test_support::hold::Hold;

/// Length of a block with the options of the impostors.
const BLOCK: usize = 8192;
const SMALL: &str = "--window 16K --chunk 4K";
/// The error of a side whose peer goes on without progress.
const NO_PROGRESS: &str = "made no progress for 1 s";
/// A file of two whole blocks and one of 100 bytes.
const SIZE: usize = 2 * BLOCK + 100;

#[test]
fn every_size_arrives_whole_both_ways() {
    let place = Place::new();
    secret(&place, "key", "sixteen or more bytes");
    for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3_000_001] {
        place.file("src", len);
        for from in Side::BOTH {
            for args in ["", "--window 16K --checksum none", "--window 1M --sync"] {
                let tcp = format!("-e stream -c tcp:{} --secret-file key {args}", free_port());
                let (sent, received) = place.copies(from, &tcp);
                for line in [sent, received] {
                    assert!(line.ends_with(" GB/s, engine stream, 0 retries"), "{line}");
                }
                fs::remove_file(place.path("dst")).expect("removed");
            }
        }
    }
}

#[test]
fn resuming_goes_on_where_an_earlier_copy_ended() {
    let place = Place::new();
    let all = fs::read(place.file("src", 10 * BLOCK + 7)).expect("readable");
    for from in Side::BOTH {
        for (there, skipped) in [(5 * BLOCK + 77, 5 * BLOCK), (all.len(), all.len())] {
            fs::write(place.path(PARTIAL), &all[..there]).expect("written");
            let (sent, _) = place.copies(from, "-e stream --resume --window 16K --chunk 4K");
            assert!(sent.ends_with(&format!(", {skipped} bytes were already copied earlier")), "{sent}");
            fs::remove_file(place.path("dst")).expect("removed");
        }
    }
}

#[test]
fn both_sides_must_agree_on_it() {
    let place = Place::new();
    place.file("src", 1000);
    for from in Side::BOTH {
        let (sender, receiver) = place.pair_of(from, "-f src -e stream", "-f dst -e cpu");
        let streams =
            if from == Side::Host { "the host has --engine stream" } else { "the DPU has --engine stream" };
        // The side that detects the mismatch first reports it to the other side, unless both sides detect it
        // at the same time.
        for ended in [&sender, &receiver] {
            ended.failed(&["agreeing on the copy", streams, "on both sides, or on neither"]);
        }
        assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
    }
}

/// Does nothing on a machine with an RDMA device. Most test machines have none.
#[test]
fn without_rdma_the_other_way_is_offered() {
    if dma::open("rdma").is_ok() {
        return;
    }
    let place = Place::new();
    for side in Side::BOTH {
        for engine in ["rdma", "meter+rdma"] {
            let ended = place.start(side, &format!("-f dst -e {engine}")).end();
            ended.failed(&["starting", "or copy without RDMA: --engine stream on both sides"]);
        }
    }
    place.start(Side::Host, "-f dst -e doca").end().failed(&["starting"]);
}

/// Runs `side`, with the arguments `args`, against an impostor that has a file of `file` bytes to
/// send, or no file.
fn against(place: &Place, side: Side, args: &str, file: Option<u64>) -> (Running, Impostor) {
    let (running, _, impostor) = begin(place, side, &format!("{args} {SMALL}"), file, 16 << 10);
    (running, impostor)
}

/// Like [`against`], but with exactly these arguments, and with an impostor that requests a window of
/// `window` bytes. The side holds when both sides have agreed on the copy.
fn begin(place: &Place, side: Side, args: &str, file: Option<u64>, window: u64) -> (Running, Hold, Impostor) {
    let start = || place.hold(side, &format!("{args} -e stream"), "agreed");
    let ((running, hold), mut impostor, role) = match side {
        Side::Dpu => (start(), Impostor::connect(place.dir.path()), Role::Host),
        Side::Host => {
            let _ = fs::remove_file(place.path("socket"));
            let listener = UnixListener::bind(place.path("socket")).expect("a socket");
            let running = start();
            (running, Impostor(listener.accept().expect("it connects").0), Role::Dpu)
        }
    };
    impostor.0.set_read_timeout(Some(LONG)).expect("set");
    impostor.say(&Message::Hello(Hello { stream: true, window, ..hello(role, file) }));
    assert!(matches!(impostor.hear(), Message::Hello(Hello { stream: true, .. })));
    (running, hold, impostor)
}

fn data(len: usize) -> Message {
    Message::Data(Data(vec![7; len]))
}

/// Sends `messages` to a receiver in each role. The receiver must fail with all of `words`.
fn receiver_against(words: &[&str], messages: &[Message]) {
    for side in Side::BOTH {
        let place = Place::new();
        let args = format!("-f dst --checksum none {SMALL}");
        let (receiver, mut hold, mut impostor) = begin(&place, side, &args, Some(SIZE as u64), 16 << 10);
        assert!(matches!(impostor.hear(), Message::Resume { len: 0, .. }));
        impostor.say(&Message::ResumeAnswer { from: 0 });
        hold.wait("agreed");
        hold.answer(if words.contains(&NO_PROGRESS) { "peer=1" } else { "" });
        for (i, message) in messages.iter().enumerate() {
            impostor.say(message);
            // The next block fits the window only after this block is written.
            if matches!(message, Message::Filled { .. }) && i + 1 < messages.len() {
                assert!(matches!(impostor.hear(), Message::Freed { .. }), "{words:?}");
            }
        }
        receiver.end().failed(words);
        assert!(matches!(last(&mut impostor), Some(Message::Abort { .. })), "it says why");
        assert!(!place.path("dst").exists() && !place.path(PARTIAL).exists(), "nothing is left behind");
    }
}

#[test]
fn a_receiver_checks_every_number_of_its_sender() {
    let hole = |len| Message::Hole { len };
    let end = |digest| Message::End { total: SIZE as u64, retries: 0, digest };
    let whole = |seq, slot, len| [data(len), filled(seq, slot, len as u32)];
    for (words, messages) in [
        ("8193 bytes of block 0 at byte 0", vec![data(BLOCK + 1)]),
        ("8193 bytes of block 0 at byte 0", vec![data(BLOCK), data(1)]),
        ("block 0 of 8192 bytes in slot 0, when byte 0 was due", vec![filled(0, 0, BLOCK as u32)]),
        ("block 0 of 8192 bytes", vec![data(BLOCK - 1), filled(0, 0, BLOCK as u32)]),
        ("block 0 of 8191 bytes", vec![data(BLOCK - 1), filled(0, 0, BLOCK as u32 - 1)]),
        ("block 1 of 8192 bytes", vec![data(BLOCK), filled(1, 0, BLOCK as u32)]),
        ("in slot 2", vec![data(BLOCK), filled(0, 2, BLOCK as u32)]),
        ("block 0 of 8192 bytes", [whole(0, 0, BLOCK), whole(0, 1, BLOCK)].concat()),
        ("a hole within block 0", vec![data(1), hole(BLOCK as u64)]),
        ("101 bytes of block 2", [&whole(0, 0, BLOCK)[..], &whole(1, 1, BLOCK), &[data(101)]].concat()),
        (
            "1 byte of block 3 at byte 16484",
            [&whole(0, 0, BLOCK)[..], &whole(1, 1, BLOCK), &whole(2, 0, 100), &[data(1)]].concat(),
        ),
        (
            "the digest of the bytes sent",
            [&whole(0, 0, BLOCK)[..], &whole(1, 1, BLOCK), &whole(2, 0, 100), &[end(1)]].concat(),
        ),
        ("it ended after 0 bytes", vec![data(BLOCK), end(0)]),
        ("Freed at the wrong time", vec![Message::Freed { slot: 0 }]),
        ("more bytes of blocks than the agreed 16384", vec![data(2 * BLOCK + 1)]),
        ("more bytes of blocks than the agreed 16384", vec![data(MAX_DATA)]),
    ] {
        receiver_against(&[words, "violates the protocol"], &messages);
    }
    // The sender stops sending.
    receiver_against(&[NO_PROGRESS], &[data(BLOCK)]);
}

#[test]
fn a_block_that_is_another_than_its_digest_is_not_written() {
    for side in Side::BOTH {
        let place = Place::new();
        let (receiver, mut impostor) = against(&place, side, "-f dst", Some(SIZE as u64));
        assert!(matches!(impostor.hear(), Message::Resume { .. }));
        impostor.say(&Message::ResumeAnswer { from: 0 });
        impostor.say(&data(BLOCK));
        impostor.say(&filled(0, 0, BLOCK as u32));
        receiver.end().failed(&["the 8192 bytes at 0 differ from the bytes that were sent", "the network"]);
        assert!(!place.path("dst").exists() && !place.path(PARTIAL).exists(), "nothing is left behind");
    }
}

#[test]
fn a_sender_takes_no_bytes_and_sends_no_more_than_the_window() {
    for side in Side::BOTH {
        let place = Place::new();
        place.file("src", 100_000);
        let (sender, mut impostor) = against(&place, side, "-f src", None);
        impostor.say(&Message::Resume { len: 0, digest: 0 });
        assert_eq!(impostor.hear(), Message::ResumeAnswer { from: 0 });
        for seq in 0..2 {
            assert!(matches!(impostor.hear(), Message::Data(Data(bytes)) if bytes.len() == BLOCK));
            assert!(matches!(impostor.hear(), Message::Filled { seq: s, .. } if s == seq));
        }
        // The receiver has both slots, so the sender sends no more blocks until one is free.
        impostor.say(&data(1));
        sender.end().failed(&["it sent Data at the wrong time"]);
        assert!(matches!(impostor.hear(), Message::Abort { .. }));
    }
}

#[test]
fn a_sender_can_be_interrupted_while_the_other_side_takes_nothing() {
    for side in Side::BOTH {
        let place = Place::new();
        place.file("src", 4 << 20);
        let (mut sender, _, mut impostor) = begin(&place, side, "-f src", None, 4 << 20);
        impostor.say(&Message::Resume { len: 0, digest: 0 });
        // The sender fills the socket's buffer, and then blocks within a message.
        std::thread::sleep(Duration::from_millis(500));
        sender.signal(Signal::INT);
        let ended = sender.end();
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        assert!(ended.err.contains(": interrupted"), "{ended:?}");
    }
}

#[test]
fn bytes_are_refused_where_an_engine_moves_them() {
    let place = Place::new();
    let dpu = place.start(Side::Dpu, "-f dst -e cpu");
    let mut impostor = Impostor::connect(place.dir.path());
    impostor.say(&Message::Hello(Hello { checksum: Checksum::None, ..hello(Role::Host, Some(1)) }));
    impostor.say(&data(1));
    dpu.end().failed(&["more bytes of blocks than the agreed 0"]);
}

#[test]
fn over_tcp_a_byte_that_is_changed_on_the_way_is_noticed() {
    for from in Side::BOTH {
        let place = Place::new();
        place.file("src", 1_000_000);
        secret(&place, "key", "sixteen or more bytes");
        // The changed byte is in the middle of the file's bytes.
        let ([host, dpu], _) =
            place.through_a_proxy(from, "-e stream --checksum none", Some((from, 500_000)));
        let (sender, receiver) = if from == Side::Host { (host, dpu) } else { (dpu, host) };
        receiver.failed(&["changed or forged in transit"]);
        sender.failed(&["changed or forged in transit"]);
        assert!(!place.path("dst").exists() && !place.path(PARTIAL).exists(), "nothing is left behind");
    }
}

#[test]
fn sparse_files_stay_sparse() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let place = Place::new();
    let src = fs::File::create(place.path("src")).expect("a file");
    src.set_len(100_000_000).expect("sparse");
    src.write_all_at(b"something", 50_000_000).expect("written");
    for from in Side::BOTH {
        place.copies(from, "-e stream");
        let dst: &Path = &place.path("dst");
        assert_same(&place.path("src"), dst);
        assert!(fs::metadata(dst).expect("there").blocks() * 512 < 16 << 20, "the holes are holes");
        fs::remove_file(dst).expect("removed");
    }
}
