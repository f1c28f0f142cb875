//! `dma-copy` from the command line: copies between host and DPU, and error messages.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

mod pair;

use pair::{PARTIAL, Place, Side, assert_same, run, sample};

/// Engines that can access the memory of another process on this machine.
const ENGINES: [&str; 2] = ["cpu", "sim:profile=bluefield3"];
/// Block length with the arguments `SMALL`: half of the window.
const SMALL: &str = "--window 16K --chunk 4K";
const BLOCK: usize = 8192;

#[test]
fn every_size_arrives_whole_both_ways() {
    let place = Place::new();
    for engine in ENGINES {
        for len in [
            0,
            1,
            4095,
            4096,
            4097,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            2 * BLOCK - 1,
            2 * BLOCK,
            2 * BLOCK + 1,
            200_000,
        ] {
            place.file("src", len);
            for from in Side::BOTH {
                let (sent, received) = place.copies(from, &format!("-e {engine} {SMALL}"));
                let (a, b) = if from == Side::Host { ("host", "DPU") } else { ("DPU", "host") };
                let begins = format!("copied {len} bytes from {a} to {b} in ");
                for line in [sent, received] {
                    assert!(line.starts_with(&begins) && line.contains(" GB/s, engine "), "{line}");
                    assert!(line.ends_with(", 0 retries"), "{line}");
                }
                fs::remove_file(place.path("dst")).expect("removed");
            }
        }
    }
}

#[test]
fn several_files_are_copied_in_one_session() {
    let place = Place::new();
    for engine in ["cpu", "sim:profile=bluefield3", "stream"] {
        // The second file is copied in the opposite direction.
        let lengths = [100_000, 0, 50_001];
        for (i, len) in lengths.iter().enumerate() {
            place.file(&format!("src{i}"), *len);
        }
        let (host, dpu) = place.pair_of(
            Side::Host,
            &format!("-e {engine} {SMALL} -f src0 -f dst1 -f src2"),
            &format!("-e {engine} {SMALL} -f dst0 -f src1 -f dst2"),
        );
        for ended in [&host, &dpu] {
            assert!(ended.status.success() && ended.err.is_empty(), "{ended:?}");
            assert_eq!(ended.out.lines().count(), lengths.len(), "a summary of each: {ended:?}");
        }
        for (i, len) in lengths.iter().enumerate() {
            let (a, b) = if i == 1 { ("DPU", "host") } else { ("host", "DPU") };
            let line = host.out.lines().nth(i).expect("a line");
            assert!(line.starts_with(&format!("copied {len} bytes from {a} to {b} in ")), "{line}");
            assert_same(&place.path(&format!("src{i}")), &place.path(&format!("dst{i}")));
            fs::remove_file(place.path(&format!("dst{i}"))).expect("removed");
        }
    }
    let (host, dpu) = place.pair_of(Side::Host, "-f src0 -f src1", "-f dst0");
    for ended in [host, dpu] {
        ended.failed(&["give --file equally often on both sides"]);
    }
    assert!(!place.path("dst0").exists());
    let ended = place.start(Side::Host, "-f dst0 -f ./dst0").end();
    ended.failed(&["--file ./dst0 is given twice", "the second copy would replace the first"]);
}

#[test]
fn every_chunk_window_and_checksum() {
    let place = Place::new();
    place.file("src", 3_000_001);
    for from in Side::BOTH {
        for args in [
            "",
            "--checksum none",
            "--checksum xxh3 --depth 1",
            "--checksum blake3 --sync",
            "--chunk 4K --depth 64",
            "--chunk 1G --window 8M",
            "--window 8K --chunk 1M",
            "--window 1G --chunk 64K --depth 1000 -e cpu:threads=0",
            "-e sim:profile=bluefield2,seed=3 --chunk 1G",
            "-e sim:max_transfer=1000 --window 64K",
        ] {
            place.copies(from, args);
            fs::remove_file(place.path("dst")).expect("removed");
        }
    }
}

#[test]
fn sides_may_ask_for_different_things() {
    let place = Place::new();
    place.file("src", 1_000_000);
    for from in Side::BOTH {
        let (sent, received) = place.pair_of(
            from,
            "-f src --window 1M --checksum none",
            "-f dst --window 16K --checksum blake3 --chunk 1M",
        );
        sent.copied();
        received.copied();
        assert_same(&place.path("src"), &place.path("dst"));
        fs::remove_file(place.path("dst")).expect("removed");
    }
}

#[test]
fn either_side_may_come_first() {
    let place = Place::new();
    place.file("src", 100);
    for first in Side::BOTH {
        let early = place.start(first, if first == Side::Host { "-f src" } else { "-f dst" });
        std::thread::sleep(std::time::Duration::from_millis(200));
        let late = place.start(first.other(), if first == Side::Host { "-f dst" } else { "-f src" });
        late.end().copied();
        early.end().copied();
        fs::remove_file(place.path("dst")).expect("removed");
    }
}

#[test]
fn the_default_channel_is_this_users_own() {
    let place = Place::new();
    place.file("src", 100);
    let side = |side: Side, file| {
        let mut command = place.command(side, "");
        command = {
            let mut bare = std::process::Command::new(command.get_program());
            bare.args(["--role", side.name(), "-f", file]);
            bare
        };
        command
            .current_dir(place.dir.path())
            .env_remove("XDG_RUNTIME_DIR")
            .env("TMPDIR", place.dir.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        run(command)
    };
    let dpu = side(Side::Dpu, "dst");
    side(Side::Host, "src").end().copied();
    dpu.end().copied();
    let dir = fs::read_dir(place.dir.path())
        .expect("a directory")
        .map(|e| e.expect("an entry"))
        .find(|e| e.file_name().to_string_lossy().starts_with("dma-copy-"))
        .expect("a directory for the socket");
    assert_eq!(dir.metadata().expect("there").mode() & 0o777, 0o700);
}

#[test]
fn sparse_files_of_several_gib_arrive_and_stay_sparse() {
    let place = Place::new();
    let src = File::create(place.path("src")).expect("a file");
    let len = 5 << 30;
    src.set_len(len).expect("sparse");
    for at in [0, 3 << 20, (1 << 30) + 4000, (3 << 30) - 1, len - 10] {
        src.write_all_at(b"something", at).expect("written");
    }
    for from in Side::BOTH {
        let (sent, received) = place.pair(from, "");
        sent.copied();
        received.copied();
        let dst = File::open(place.path("dst")).expect("there");
        assert_eq!(dst.metadata().expect("there").len(), len);
        assert!(dst.metadata().expect("there").blocks() * 512 < 64 << 20, "the holes are holes");
        for at in [0, 3 << 20, (1 << 30) + 4000, (3 << 30) - 1, len - 10] {
            let mut around = [7; 30];
            let from = u64::saturating_sub(at, 10);
            let n = dst.read_at(&mut around, from).expect("readable");
            let mut expected = [0; 30];
            expected[(at - from) as usize..][..9].copy_from_slice(b"something");
            assert_eq!(around[..n], expected[..n], "at {at}");
        }
        fs::remove_file(place.path("dst")).expect("removed");
    }
    // A file that is one hole.
    File::create(place.path("src")).expect("a file").set_len(100_000_000).expect("sparse");
    for from in Side::BOTH {
        place.copies(from, "");
        fs::remove_file(place.path("dst")).expect("removed");
    }
}

#[test]
fn the_copy_keeps_its_permissions_and_nothing_more() {
    let place = Place::new();
    let src = place.file("src", 10);
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("an umask");
    let umask = u32::from_str_radix(umask.trim(), 8).expect("octal");
    let refused_to_others = 0o077;
    for mode in [0o640, 0o600, 0o400, 0o755, 0o666, 0o6755, 0o1777] {
        for from in Side::BOTH {
            fs::set_permissions(&src, Permissions::from_mode(mode)).expect("permissions");
            place.copies(from, "");
            let kept = fs::metadata(place.path("dst")).expect("there").mode() & 0o7777;
            assert_eq!(kept, mode & 0o777 & !umask, "{mode:o} from {from:?}");
            fs::remove_file(place.path("dst")).expect("removed");
        }
    }
    // The receiver's umask applies.
    fs::set_permissions(&src, Permissions::from_mode(0o666)).expect("permissions");
    let command = place.command(Side::Dpu, "-f dst");
    let mut strict = std::process::Command::new("sh");
    strict.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    strict.current_dir(place.dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let receiver = run(strict);
    place.start(Side::Host, "-f src").end().copied();
    receiver.end().copied();
    assert_eq!(fs::metadata(place.path("dst")).expect("there").mode() & refused_to_others, 0);
}

#[test]
fn the_sender_must_be_clear() {
    let place = Place::new();
    place.file("src", 10);
    place.file("dst", 10);
    for ended in <[_; 2]>::from(place.pair(Side::Host, "")) {
        ended.failed(&["the file exists on both sides", "remove it on the side that receives"]);
    }
    for ended in <[_; 2]>::from(place.pair_of(Side::Host, "-f none", "-f nothing")) {
        ended.failed(&["the file exists on neither side", "check --file"]);
    }
    assert_eq!(place.names(), ["dst".to_owned(), "src".to_owned()].into());
    let (a, b) = (
        place.start(Side::Host, "-f src -c tcp:127.0.0.1:1 --timeout 0.2"),
        place.start(Side::Host, "-f src --timeout 0.2"),
    );
    assert_eq!(a.end().status.code(), Some(2), "no secret");
    b.end().failed(&["host: connecting", "no DPU listened", "--role dpu"]);
    place.start(Side::Dpu, "-f dst --timeout 0.2").end().failed(&[
        "DPU: connecting",
        "no host connected",
        "--role host",
    ]);
}

#[test]
fn bad_files_are_named_before_anybody_waits() {
    let place = Place::new();
    fs::create_dir(place.path("dir")).expect("a directory");
    for side in Side::BOTH {
        place.start(side, "-f dir").end().failed(&["dir is a directory"]);
        place.start(side, "-f /dev/null").end().failed(&["/dev/null is a device"]);
        place.start(side, "-f src -e sim:sed=1").end().failed(&["seed"]);
    }
    place.file("src", 10);
    symlink("nowhere", place.path("link")).expect("a link");
    for from in Side::BOTH {
        for (file, says) in [
            ("missing/dst", "the directory missing does not exist"),
            ("link", "link is a dangling link"),
            ("dst/", "names no file"),
        ] {
            let (sender, receiver) = place.pair_of(from, "-f src", &format!("-f {file}"));
            receiver.failed(&["writing the file", says]);
            sender.failed(&["gave up (writing the file)", says]);
        }
    }
}

#[test]
fn an_existing_partial_file_is_not_trusted() {
    let place = Place::new();
    place.file("src", 1000);
    place.file("precious", 10);
    for lay in [
        &(|to| symlink(place.path("precious"), to)) as &dyn Fn(_) -> _,
        &|to| fs::hard_link(place.path("precious"), to),
        &fs::create_dir,
    ] {
        lay(place.path(PARTIAL)).expect("laid there");
        let (sender, receiver) = place.pair(Side::Host, "");
        receiver.failed(&["exists and is not a"]);
        sender.failed(&["the DPU gave up"]);
        if place.path(PARTIAL).is_dir() {
            fs::remove_dir(place.path(PARTIAL)).expect("removed");
        } else {
            fs::remove_file(place.path(PARTIAL)).expect("removed");
        }
    }
    assert_eq!(fs::read(place.path("precious")).expect("there"), sample(10));
    // Without --resume, the copy starts at the beginning, even if an earlier run left a longer partial copy.
    fs::write(place.path(PARTIAL), vec![7; 5000]).expect("written");
    place.copies(Side::Host, "");
}

#[test]
fn json_has_the_options_of_the_original() {
    let place = Place::new();
    place.file("src", 1000);
    let write = |name: &str, text: &str| fs::write(place.path(name), text).expect("written");
    write(
        "host.json",
        r#"{"doca_general_flags": {"log-level": 30, "sdk-log-level": 30}, "doca_program_flags": {"file": "src", "timeout": 20}}"#,
    );
    write(
        "dpu.json",
        r#"{"doca_program_flags": {"file": "wrong", "chunk": "8K", "resume": true, "sync": false}}"#,
    );
    // The command line overrides the file.
    let dpu = place.start(Side::Dpu, "-j dpu.json -f dst");
    place.start(Side::Host, "--json=host.json").end().copied();
    dpu.end().copied();
    assert_same(&place.path("src"), &place.path("dst"));
    for (text, says) in [
        ("{", "is not valid JSON"),
        ("[]", "the top level is not an object"),
        (r#"{"doca_flags": {}}"#, "`doca_flags` is not a group"),
        (r#"{"doca_program_flags": {"fiel": "x"}}"#, "no option `fiel`"),
        (r#"{"doca_program_flags": {"version": true}}"#, "no option `version`"),
        (r#"{"doca_program_flags": 3}"#, "`doca_program_flags` is 3; it must be an object"),
        (r#"{"doca_program_flags": {"chunk": ["x"]}}"#, "give a text or a number"),
        (r#"{"doca_program_flags": {"file": true}}"#, "`file` is true; give a text or a number"),
        (
            r#"{"doca_program_flags": {"file": "x", "resume": "yes"}}"#,
            "`resume` is \"yes\", but it is a switch",
        ),
        (r#"{"doca_program_flags": {"file": "x", "quiet": 2}}"#, "it is a switch"),
        (r#"{"doca_program_flags": {"file": "x", "chunk": "1"}}"#, "4K to 1G"),
        (r#"{"doca_program_flags": {"file": "x", "pci-addr": "nonsense"}}"#, "DDDD:BB:DD.F"),
        (r#"{"doca_general_flags": {"log-level": 80}, "doca_program_flags": {"file": "x"}}"#, "80"),
    ] {
        write("bad.json", text);
        let ended = place.start(Side::Dpu, "-j bad.json").end();
        assert_eq!(ended.status.code(), Some(2), "{text}: {ended:?}");
        assert!(ended.err.contains(says), "{text}: {ended:?}");
    }
    let ended = place.start(Side::Dpu, "-j missing.json").end();
    assert!(ended.err.contains("missing.json"), "{ended:?}");
}

#[test]
fn the_command_line_is_the_originals() {
    let place = Place::new();
    let run_it = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dma-copy"));
        command
            .args(args)
            .current_dir(place.dir.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        run(command).end()
    };
    assert!(run_it(&["-v"]).out.starts_with("dma-copy "));
    let help = run_it(&["-h"]);
    for option in
        ["--file", "--pci-addr", "--rep-pci", "--log-level", "--json", "--version", "--help", "--resume"]
    {
        assert!(help.out.contains(option), "{option}");
    }
    for (args, says) in [
        (&["-f", "x"][..], "--role host or --role dpu"),
        (&["-f", "x", "--role", "host", "-r", "b1:00.0"], "--rep-pci is only for the DPU"),
        (&["-f", "x", "--role", "guest"], "guest"),
        (&["--role", "host"], "--file"),
        (&["-f", "x", "--role", "host", "-c", "pigeon:home"], "give unix:PATH"),
        (&["-f", "x", "--role", "host", "-c", "tcp:4711"], "--secret-file"),
        (&["-f", "x", "--role", "host", "--secret-file", "y"], "--secret-file is only for tcp"),
        (&["-f", "x", "--role", "host", "-l", "9"], "9"),
        (&["-f", "x", "--role", "host", "--timeout", "0"], "0.1 to 86400"),
        (&["-f", "x", "--role", "host", "--window", "4K"], "8K to 16G"),
    ] {
        let ended = run_it(args);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {ended:?}");
        assert!(ended.err.contains(says), "{args:?}: {ended:?}");
    }
    // -r implies the DPU's role. No device of this machine has that address.
    let ended = run_it(&["-f", "x", "-p", "03:00.0", "-r", "b1:00.0"]);
    ended.failed(&["dma-copy: DPU: starting", "0000:03:00.0"]);
}

#[test]
fn resuming_goes_on_where_an_earlier_copy_ended() {
    let place = Place::new();
    let src = place.file("src", 10 * BLOCK + 7);
    let all = fs::read(&src).expect("readable");
    for from in Side::BOTH {
        for (there, skipped) in [
            (0, None),
            (BLOCK - 1, None),
            (BLOCK, Some(BLOCK)),
            (5 * BLOCK + 77, Some(5 * BLOCK)),
            (all.len() - 1, Some(10 * BLOCK)),
            (all.len(), Some(all.len())),
            (all.len() + 10, Some(all.len())),
        ] {
            let mut partial = all.clone();
            partial.resize(all.len() + 10, 7);
            fs::write(place.path(PARTIAL), &partial[..there]).expect("written");
            let (sent, received) = place.copies(from, &format!("--resume {SMALL}"));
            for line in [sent, received] {
                match skipped {
                    Some(n) => {
                        assert!(line.ends_with(&format!(", {n} bytes were already copied earlier")), "{line}")
                    }
                    None => assert!(line.ends_with(" retries"), "{line}"),
                }
            }
            fs::remove_file(place.path("dst")).expect("removed");
        }
        // Without --resume the copy starts at the beginning.
        fs::write(place.path(PARTIAL), &all[..5 * BLOCK]).expect("written");
        let (sent, _) = place.copies(from, SMALL);
        assert!(sent.ends_with(" retries"), "{sent}");
        fs::remove_file(place.path("dst")).expect("removed");
        // The partial copy belongs to another file, so the copy starts at the beginning.
        let mut other = all[..5 * BLOCK].to_vec();
        other[100] ^= 1;
        fs::write(place.path(PARTIAL), other).expect("written");
        let (sent, _) = place.copies(from, &format!("--resume {SMALL}"));
        assert!(sent.ends_with(" retries"), "{sent}");
        fs::remove_file(place.path("dst")).expect("removed");
    }
}

/// Only the owner can read a partial copy, even if the earlier partial copy was readable by all users.
#[test]
fn a_partial_copy_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    for there in [false, true] {
        let place = Place::new();
        place.file("src", 5 * BLOCK);
        if there {
            fs::write(place.path(PARTIAL), b"").expect("written");
            fs::set_permissions(place.path(PARTIAL), fs::Permissions::from_mode(0o666)).expect("set");
        }
        let (receiver, mut hold) = place.hold(Side::Host, &format!("-f dst {SMALL}"), "block");
        let sender = place.start(Side::Dpu, &format!("-f src {SMALL}"));
        hold.wait("block");
        let mode = fs::metadata(place.path(PARTIAL)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{there}");
        drop(hold);
        sender.end().copied();
        receiver.end().copied();
    }
}

#[test]
fn names_have_any_length_that_the_file_system_takes() {
    for len in [1, 237, 238, 254, 255] {
        let place = Place::new();
        place.file("src", 5000);
        let name = "n".repeat(len);
        let (sender, receiver) = place.pair_of(Side::Dpu, "-f src", &format!("-f {name}"));
        assert!(sender.status.success() && receiver.status.success(), "{len}: {sender:?} {receiver:?}");
        assert_same(&place.path("src"), &place.path(&name));
        assert_eq!(place.names(), [name, "src".to_owned()].into(), "nothing else is left");
    }
    let place = Place::new();
    place.file("src", 5000);
    let receiver = place.start(Side::Host, &format!("-f {}", "n".repeat(256)));
    receiver.end().failed(&["too long", "give a shorter one"]);
}

/// Two long names that differ only at their ends have different partial copies.
#[test]
fn a_copy_to_a_long_name_is_resumed() {
    let place = Place::new();
    let all = fs::read(place.file("src", 10 * BLOCK)).expect("readable");
    let names = ["a", "b"].map(|end| "n".repeat(254) + end);
    let mut partials = Vec::new();
    for name in &names {
        let args = format!("--resume {SMALL}");
        let (receiver, mut hold) = place.hold(Side::Host, &format!("-f {name} {args}"), "block");
        let sender = place.start(Side::Dpu, &format!("-f src {args}"));
        hold.wait("block");
        let new = |n: &String| n.ends_with(".partial") && !partials.contains(n);
        let partial = place.names().into_iter().find(new).expect("a partial copy");
        assert!(fs::metadata(place.path(&partial)).expect("there").len() >= BLOCK as u64);
        // Dropping a process kills it.
        drop(receiver);
        sender.end();
        partials.push(partial);
    }
    assert_eq!(place.names().len(), 3, "{:?}", place.names());
    for name in &names {
        let args = format!("--resume {SMALL}");
        let (sender, _) = place.pair_of(Side::Dpu, &format!("-f src {args}"), &format!("-f {name} {args}"));
        assert!(sender.copied().ends_with(" bytes were already copied earlier"), "{sender:?}");
        assert!(fs::read(place.path(name)).expect("readable") == all);
    }
}

/// An empty partial copy is removed, because --resume cannot use it.
#[test]
fn an_empty_partial_copy_is_not_kept() {
    let place = Place::new();
    place.file("src", 5 * BLOCK);
    let receiver = place.start(Side::Dpu, "-f dst --resume -e cpu");
    let sender = place.start(Side::Host, "-f src --resume -e sim");
    let (receiver, sender) = (receiver.end(), sender.end());
    receiver.failed(&["importing"]);
    sender.failed(&[]);
    assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
}

#[test]
fn a_name_that_is_taken_meanwhile_is_left_alone() {
    let place = Place::new();
    place.file("src", 5 * BLOCK);
    let take = || File::create(place.path("dst")).expect("a file").write_all(b"mine").expect("written");
    for from in Side::BOTH {
        // The file is created while the DPU waits for the host. The DPU has already looked for its file when
        // its socket exists.
        if from == Side::Host {
            let receiver = place.start(Side::Dpu, "-f dst");
            while !place.path("socket").exists() {
                std::thread::yield_now();
            }
            take();
            let sender = place.start(Side::Host, "-f src");
            receiver.end().failed(&["dst was created during the copy"]);
            sender.end().failed(&["gave up"]);
            fs::remove_file(place.path("dst")).expect("removed");
        }
        // The file is created while bytes are copied.
        let (receiver, mut hold) = place.hold(from.other(), &format!("-f dst {SMALL}"), "block");
        let sender = place.start(from, &format!("-f src {SMALL}"));
        hold.wait("block");
        take();
        drop(hold);
        receiver.end().failed(&["dst was created during the copy"]);
        sender.end().failed(&["gave up"]);
        assert_eq!(fs::read(place.path("dst")).expect("there"), b"mine");
        fs::remove_file(place.path("dst")).expect("removed");
        assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
    }
}

/// Copies that the device aborts are submitted again.
#[test]
fn a_device_that_resets_is_recovered_from() {
    let place = Place::new();
    place.file("src", 400_000);
    for from in Side::BOTH {
        for faults in
            ["reset@t=1us", "refuse@7", "fail@7", "reset@9", "reset@t=100us", "reset@t=5us+refuse@9"]
        {
            let args = format!("-e sim:profile=bluefield3,faults={faults} --chunk 4K --window 64K");
            let (sent, received) = place.copies(from, &args);
            assert!(!sent.ends_with(" 0 retries") || faults == "reset@t=100us", "{faults}: {sent}");
            // Both sides report the same number of retries.
            let retries = |line: &str| line.rsplit(", ").next().map(str::to_owned);
            assert_eq!(retries(&sent), retries(&received));
            fs::remove_file(place.path("dst")).expect("removed");
        }
    }
}

#[test]
fn a_device_that_fails_ends_both_sides() {
    let place = Place::new();
    place.file("src", 400_000);
    for from in Side::BOTH {
        for (faults, says) in [
            ("fail@7-", "device fault"),
            ("gone@7", "device"),
            ("refuse", "copying bytes by DMA"),
            ("lose@5", "completed nothing for 0.5 s"),
            ("stick@5", "completed nothing for 0.5 s"),
        ] {
            let args = |side| {
                let file = if side == from { "src" } else { "dst" };
                format!("-f {file} -e sim:faults={faults} --chunk 4K --window 64K")
            };
            let (dpu, mut hold) = place.hold(Side::Dpu, &args(Side::Dpu), "agreed");
            let host = place.start(Side::Host, &args(Side::Host));
            hold.wait("agreed");
            hold.answer(if says.contains("0.5 s") { "device=0.5" } else { "" });
            let (host, dpu) = (host.end(), dpu.end());
            dpu.failed(&["DPU: copying bytes by DMA", says]);
            host.failed(&["host: the DPU gave up (copying bytes by DMA)", says]);
            assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
        }
    }
}

#[test]
fn corruption_is_found() {
    let place = Place::new();
    place.file("src", 400_000);
    for from in Side::BOTH {
        for checksum in ["xxh3", "blake3"] {
            let args = format!("-e sim:faults=corrupt@7 --chunk 4K --window 64K --checksum {checksum}");
            let (sender, receiver) = place.pair(from, &args);
            receiver.failed(&[
                "verifying what arrived",
                "differ from the bytes that were sent",
                "--engine cpu",
            ]);
            sender.failed(&["gave up (verifying what arrived)"]);
            assert_eq!(place.names(), ["src".to_owned()].into(), "nothing is left behind");
        }
        // Without checksums, corruption is not detected.
        let (sender, receiver) =
            place.pair(from, "-e sim:faults=corrupt@7 --chunk 4K --window 64K --checksum none");
        sender.copied();
        receiver.copied();
        assert_ne!(
            fs::read(place.path("src")).expect("readable"),
            fs::read(place.path("dst")).expect("readable")
        );
        fs::remove_file(place.path("dst")).expect("removed");
        // The blocks that were verified earlier are kept for --resume.
        let (_, receiver) = place.pair(from, &format!("-e sim:faults=corrupt@37 {SMALL} --resume"));
        receiver.failed(&["verifying what arrived"]);
        assert!(fs::metadata(place.path(PARTIAL)).expect("kept").len() >= 8 * BLOCK as u64);
        let (sent, _) = place.copies(from, &format!("--resume {SMALL}"));
        assert!(sent.contains("were already copied earlier"), "{sent}");
        fs::remove_file(place.path("dst")).expect("removed");
    }
}

#[test]
fn engines_of_two_kinds_are_told_apart() {
    let place = Place::new();
    place.file("src", 10);
    let (host, dpu) = place.pair_of(Side::Host, "-f src -e cpu", "-f dst -e sim");
    dpu.failed(&["importing the host's memory", "need the same engine", "cpu"]);
    host.failed(&["the DPU gave up (importing"]);
}
