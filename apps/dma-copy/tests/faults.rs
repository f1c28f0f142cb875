//! Tests `dma-copy` when a side is killed or hangs, a disk is full, a file changes, or another program
//! connects.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

mod pair;

use pair::{Ended, LONG, PARTIAL, Place, Side, assert_same, run, secret};
use test_support::free_port::free_port;

const SMALL: &str = "--window 16K --chunk 4K";

/// Generates random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Checks that the side that was not killed ended by itself, with a message if it failed.
fn assert_ended(ended: &Ended) {
    match ended.status.code() {
        Some(0) => {}
        Some(1) => assert_eq!(ended.err.trim_end().lines().count(), 1, "{ended:?}"),
        // This is the killed side.
        None => {}
        _ => panic!("{ended:?}"),
    }
}

#[test]
fn a_hundred_kills_and_every_copy_is_whole_after_resuming() {
    const KILLS: u64 = 100;
    // More lanes than processors, because the sides of a copy often wait for a timeout.
    const LANES: u64 = 10;
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            std::thread::spawn(move || {
                let mut dice = Dice(0x1234_5678 + lane);
                let (mut killed, mut resumed) = (0, 0);
                while killed < KILLS / LANES {
                    let (k, r) = kill_until_copied(&mut dice);
                    killed += k;
                    resumed += r;
                }
                (killed, resumed)
            })
        })
        .collect();
    let (killed, resumed) = lanes
        .into_iter()
        .map(|lane| lane.join().expect("it holds"))
        .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    println!("{killed} killed, {resumed} resumed from the partial copy");
    assert!(killed >= KILLS && resumed > 0, "{killed} killed, {resumed} resumed");
}

/// Kills either side several times during one copy, then lets it end. Returns the number of kills and of
/// resumed copies.
fn kill_until_copied(dice: &mut Dice) -> (u64, u64) {
    let place = Place::new();
    let src = place.file("src", 1 + dice.roll(4 << 20) as usize);
    let from = Side::BOTH[dice.roll(2) as usize];
    let args = format!("-e {} --resume --window 64K --chunk 16K", ["auto", "stream"][dice.roll(2) as usize]);
    let (mut killed, mut resumed) = (0, 0);
    for _ in 0..=dice.roll(6) {
        // Usually waits until the receiver has written a block. Otherwise a side may be killed before the
        // other one has connected, which then ends by its timeout.
        let wait = dice.roll(8) > 0;
        let more = if wait { "" } else { "--timeout 1" };
        let (receiver, mut hold) =
            place.hold(from.other(), &format!("-f dst {args} {more}"), if wait { "block" } else { "" });
        let sender = place.start(from, &format!("-f src {args} {more}"));
        // The receiver ends without a block if the last one was written before an earlier kill.
        let _ = wait && hold.reaches("block");
        drop(hold);
        std::thread::sleep(Duration::from_micros(dice.roll(15_000)));
        let mut sides = [sender, receiver];
        sides[dice.roll(2) as usize].signal(Signal::KILL);
        let ended = sides.map(pair::Running::end);
        ended.iter().for_each(assert_ended);
        killed += ended.iter().filter(|e| e.status.code().is_none()).count() as u64;
        if place.path("dst").exists() {
            assert_same(&src, &place.path("dst"));
            assert!(!place.path(PARTIAL).exists());
            return (killed, resumed);
        }
    }
    let (sent, _) = place.copies(from, &args);
    resumed += u64::from(sent.contains("were already copied earlier"));
    (killed, resumed)
}

#[test]
fn a_side_that_hangs_is_given_up_on() {
    let copy = |from, hangs: Side| {
        let place = Place::new();
        place.file("src", 400_000);
        let args = |side| format!("-f {} -e sim {SMALL}", if side == from { "src" } else { "dst" });
        let (mut hung, mut hung_hold) = place.hold(hangs, &args(hangs), "block");
        let (other, mut hold) = place.hold(hangs.other(), &args(hangs.other()), "block");
        hung_hold.wait("block");
        hold.wait("block");
        hung.signal(Signal::STOP);
        let name = if hangs == Side::Host { "the host" } else { "the DPU" };
        hold.answer("peer=1");
        drop(hold);
        // The stopped side still uses the memory that this side exported, and the log says so.
        other.end().failed_with_log(&[name, "made no progress for 1 s", "--timeout"]);
        drop(hung_hold);
        hung.signal(Signal::CONT);
        assert_eq!(hung.end().status.code(), Some(1));
        assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
    };
    // At the same time, because the pairs spend most of their time waiting.
    std::thread::scope(|scope| {
        for (from, hangs) in Side::BOTH.into_iter().flat_map(|from| Side::BOTH.map(|hangs| (from, hangs))) {
            scope.spawn(move || copy(from, hangs));
        }
    });
}

#[test]
fn an_interrupted_side_tells_the_other_one() {
    for from in Side::BOTH {
        for (signal, stops) in [(Signal::INT, Side::Host), (Signal::TERM, Side::Dpu)] {
            let place = Place::new();
            place.file("src", 400_000);
            let args = |side| format!("-f {} -e sim {SMALL}", if side == from { "src" } else { "dst" });
            let (mut interrupted, mut hold) = place.hold(stops, &args(stops), "block");
            let other = place.start(stops.other(), &args(stops.other()));
            hold.wait("block");
            interrupted.signal(signal);
            let (interrupted, other) = (interrupted.end(), other.end());
            assert_eq!(interrupted.status.code(), Some(130), "{interrupted:?}");
            other.failed(&["gave up", "it was interrupted"]);
            assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
        }
    }
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_noticed() {
    for from in Side::BOTH {
        for (change, says) in [
            (&(|file: &File| file.set_len(20_000)) as &dyn Fn(&File) -> std::io::Result<()>, "20000"),
            (&|file| file.set_len(0), "to 0 bytes"),
            (&|mut file| file.write_all(b"other"), "was written to"),
        ] {
            let place = Place::new();
            let src = place.file("src", 300_000);
            // The modification time is in the past, so that any change alters it even with a coarse clock.
            File::options()
                .write(true)
                .open(&src)
                .expect("there")
                .set_modified(std::time::UNIX_EPOCH)
                .expect("a time");
            let args = "-e sim --window 64K --chunk 16K --depth 8";
            let receiver = place.start(from.other(), &format!("-f dst {args}"));
            let (sender, mut hold) = place.hold(from, &format!("-f src {args}"), "block");
            hold.wait("block");
            change(&File::options().write(true).open(&src).expect("there")).expect("changed");
            drop(hold);
            let said = sender.end();
            said.failed(&["reading the file: src ", "while it was copied; copy it again"]);
            assert!(said.err.contains(says) || said.err.contains("shorter"), "{}", said.err);
            receiver.end().failed(&["gave up (reading the file)", "while it was copied"]);
            assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
        }
    }
}

/// A full disk. Needs the right to mount a small file system: root, or a user namespace.
#[test]
fn a_full_disk_is_named_on_both_sides() {
    let place = Place::new();
    place.file("src", 3 << 20);
    fs::create_dir(place.path("small")).expect("a directory");
    for from in Side::BOTH {
        for more in ["--checksum none", "--checksum xxh3"] {
            let side = from.other();
            let inside = place.command(side, &format!("-f small/dst {more} --window 256K"));
            let script = "mount -t tmpfs -o size=1m none small || exit 99; \"$0\" \"$@\"; code=$?; ls -A small; exit $code";
            let mut command = Command::new("unshare");
            command
                .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
                .arg(inside.get_program())
                .args(inside.get_args())
                .current_dir(place.dir.path())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            let receiver = run(command);
            let sender = place.start(from, &format!("-f src {more} --window 256K"));
            let receiver = receiver.end();
            if receiver.status.code() == Some(99) || receiver.err.contains("unshare") {
                println!("skipped: no small file system can be mounted here: {receiver:?}");
                return;
            }
            receiver.failed(&["writing the file", "no space left in small", "3145728 bytes", "make room"]);
            sender.end().failed(&["gave up (writing the file)", "no space left in small"]);
        }
    }
}

#[test]
fn over_tcp_both_sides_know_the_secret() {
    let place = Place::new();
    place.file("src", 1_000_000);
    secret(&place, "key", "sixteen or more bytes");
    for from in Side::BOTH {
        place.copies(from, &format!("-c tcp:{} --secret-file key", free_port()));
        fs::remove_file(place.path("dst")).expect("removed");
        place.copies(from, &format!("-c tcp:localhost:{} --secret-file key", free_port()));
        fs::remove_file(place.path("dst")).expect("removed");
    }
    secret(&place, "short", "fifteen bytes..");
    place
        .start(Side::Dpu, "-f dst -c tcp:1 --secret-file short")
        .end()
        .failed(&["has 15 bytes", "head -c 32"]);
    fs::set_permissions(place.path("key"), Permissions::from_mode(0o640)).expect("permissions");
    place
        .start(Side::Host, "-f src -c tcp:1 --secret-file key")
        .end()
        .failed(&["can be read by others", "chmod 600"]);
    place
        .start(Side::Host, "-f src -c tcp:1 --secret-file none")
        .end()
        .failed(&["cannot open --secret-file none"]);
}

#[test]
fn a_peer_without_the_secret_is_rejected() {
    let place = Place::new();
    place.file("src", 1000);
    secret(&place, "key", "sixteen or more bytes");
    secret(&place, "other", "sixteen or more bytes, others");
    let port = free_port();
    let channel = |key: &str, port| format!("-c tcp:{port} --secret-file {key}");
    let connect = |port| {
        let start = Instant::now();
        loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(e) => assert!(start.elapsed() < LONG, "{e}"),
            }
        }
    };
    let (dpu, mut hold) = place.hold(Side::Dpu, &format!("-f dst {}", channel("key", port)), "rejected");
    place.start(Side::Host, &format!("-f src {}", channel("other", port))).end().failed(&[
        "host: connecting",
        "refused this host",
        "the same --secret-file",
    ]);
    hold.wait("rejected");
    hold.answer("deadline=0.1");
    dpu.end().failed(&[
        "no host connected",
        "rejected because of a wrong secret: 1",
        "the same --secret-file",
    ]);
    let port = free_port();
    let (dpu, mut hold) = place.hold(Side::Dpu, &format!("-f dst {}", channel("key", port)), "rejected");
    connect(port).write_all(&[&b"DCPYTCP1"[..], &[7; 32]].concat()).expect("sent");
    hold.wait("rejected");
    hold.answer("deadline=0.1");
    dpu.end().failed(&["no host connected", "peers of another release: 1", "the same release"]);

    // Other connections cause no delay: two send no bytes, one sends random bytes, one has the wrong secret.
    let port = free_port();
    let dpu = place.start(Side::Dpu, &format!("-f dst {}", channel("key", port)));
    let silent = [connect(port), connect(port)];
    let mut loud = connect(port);
    loud.write_all(&[0x5a; 1000]).expect("sent");
    loud.set_read_timeout(Some(LONG)).expect("set");
    let mut answer = Vec::new();
    // The connection is closed or reset, without a response.
    let _ = loud.read_to_end(&mut answer);
    assert_eq!(answer, b"", "a peer that violates the protocol gets no response");
    place
        .start(Side::Host, &format!("-f src {}", channel("other", port)))
        .end()
        .failed(&["refused this host"]);
    place.start(Side::Host, &format!("-f src {}", channel("key", port))).end().copied();
    dpu.end().copied();
    assert_same(&place.path("src"), &place.path("dst"));
    drop(silent);

    // A program pretends to be the DPU: it has only what the host sends.
    let pretended = |answer: &dyn Fn(&[u8]) -> Vec<u8>, words: &[&str]| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let host = place.start(Side::Host, &format!("-f src {}", channel("key", port)));
        let (mut stream, _) = listener.accept().expect("it connects");
        let mut hello = [0; 72];
        stream.read_exact(&mut hello).expect("its first message");
        stream.write_all(&answer(&hello)).expect("answered");
        host.end().failed(words);
    };
    pretended(
        &|hello| [&hello[..8], &[0], &hello[24..]].concat(),
        &["did not prove that it is the DPU", "the same --secret-file"],
    );
    pretended(&|_| b"DCPYTCP1".to_vec(), &["version 1 of the protocol", "the same release on both sides"]);
}

/// The secret of the export descriptor, messages and the file's bytes are not readable on the way.
#[test]
fn over_tcp_everything_is_encrypted() {
    for engine in ["cpu", "stream"] {
        let place = Place::new();
        let src = fs::read(place.file("src", 100_000)).expect("a file");
        secret(&place, "key", "sixteen or more bytes");
        let (ended, bytes) = place.through_a_proxy(Side::Host, &format!("-e {engine}"), None);
        for side in &ended {
            side.copied();
        }
        assert_same(&place.path("src"), &place.path("dst"));
        assert_eq!(bytes.len() > src.len(), engine == "stream", "the connection has {} bytes", bytes.len());
        // The first bytes of a Hello and of an export descriptor of `cpu`, and some bytes of the file.
        let hello = [&[1][..], b"DCPY", &5_u16.to_le_bytes()].concat();
        let descriptor = [&b"DMAX"[..], &2_u16.to_le_bytes(), &3_u16.to_le_bytes()].concat();
        for hidden in [&hello[..], &descriptor, &src[..16], &src[50_000..50_016], b"sixteen or more"] {
            assert!(!bytes.windows(hidden.len()).any(|sent| sent == hidden), "{engine}: {hidden:?}");
        }
    }
}

#[test]
fn over_tcp_a_message_that_is_changed_on_the_way_is_noticed() {
    for from in Side::BOTH {
        // The lengths of the messages that each side sends before the first encrypted frame.
        for (changed, first) in [(Side::Host, 72 + 16), (Side::Dpu, 57 + 17)] {
            // The changed bytes are in the length, its tag, and the content of the first message, and in the
            // second message.
            for at in [0, 4, 15, 50, 110] {
                let place = Place::new();
                place.file("src", 100_000);
                secret(&place, "key", "sixteen or more bytes");
                let change = Some((changed, first + at));
                let ([host, dpu], _) = place.through_a_proxy(from, "", change);
                assert!(!host.status.success() && !dpu.status.success(), "{host:?} {dpu:?}");
                assert!(!place.path("dst").exists());
                let hears = if changed == Side::Host { dpu } else { host };
                assert!(hears.err.contains("changed or forged in transit"), "{at}: {hears:?}");
            }
        }
    }
}

#[test]
fn two_copies_with_one_socket_or_file_do_not_interfere() {
    let place = Place::new();
    place.file("src", 1000);
    let first = place.start(Side::Dpu, "-f dst");
    let start = Instant::now();
    while !place.path("socket").exists() {
        assert!(start.elapsed() < LONG);
    }
    UnixStream::connect(place.path("socket")).expect("a socket that has its name listens");
    place.start(Side::Dpu, "-f dst2").end().failed(&["another dma-copy listens on socket"]);
    place.start(Side::Host, "-f src").end().copied();
    first.end().copied();
    // A stale socket is replaced, but another file is not.
    let mut left = place.start(Side::Dpu, "-f dst3");
    while !place.path("socket").exists() {
        assert!(start.elapsed() < LONG);
    }
    left.signal(Signal::KILL);
    left.end();
    assert!(place.path("socket").exists());
    fs::remove_file(place.path("dst")).expect("removed");
    place.copies(Side::Host, "");
    place.file("socket", 10);
    place.start(Side::Dpu, "-f dst4").end().failed(&["socket exists and is not a socket"]);
    // A receiver refuses to write a partial copy that another process has locked.
    let (receiver, mut hold) = place.hold(Side::Dpu, &format!("-f slow {SMALL} -c unix:a"), "block");
    let sender = place.start(Side::Host, &format!("-f src {SMALL} -c unix:a"));
    hold.wait("block");
    let lock = File::create(place.path(".busy.dma-copy.partial")).expect("a file");
    lock.lock().expect("locked");
    let (_, refused) = place.pair_of(Side::Host, "-f src -c unix:b", "-f busy -c unix:b");
    refused.failed(&["another dma-copy is writing", "wait until it is done"]);
    drop(hold);
    receiver.end().copied();
    sender.end().copied();
}
