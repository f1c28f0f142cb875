//! `dma-copy` from the command line: copies between host and DPU, and error messages.

mod failures;
mod resuming;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

#[path = "../pair/mod.rs"]
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
                let bytes = if len == 1 { "byte" } else { "bytes" };
                let begins = format!("copied {len} {bytes} from {a} to {b} in ");
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
    ended.refused(&["--file ./dst0 is given twice", "the second copy would replace the first"]);
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
            "--sync",
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
            "-f dst --window 16K --checksum xxh3 --chunk 1M",
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
            bare.args(["--role", side.name(), "-f", file, "--timeout", "600"]);
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
        (&["-f", "x", "--role", "host", "-l", "9"], "`9` is not a log level; give 10 (off), 20"),
        (&["-f", "x", "--role", "host", "-l", "15"], "`15` is not a log level; give 10 (off), 20"),
        (&["-f", "x", "--role", "host", "--sdk-log-level", "-1"], "is not a log level"),
        (&["-f", "x", "--role", "host", "--timeout", "0"], "0.1 to 86400"),
        (&["-f", "x", "--role", "host", "--timeout", "-1"], "0.1 to 86400"),
        (&["-f", "x", "--role", "host", "--chunk", "-1"], "4K to 1G"),
        (&["-f", "x", "--role", "host", "--depth", "0x10"], "1 to 65536"),
        (&["-f", "x", "--role", "host", "--window", "4K"], "8K to 16G"),
    ] {
        let ended = run_it(args);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {ended:?}");
        assert!(ended.err.contains(says), "{args:?}: {ended:?}");
    }
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_dma-copy")).arg("-h").stdout(full()).output();
    let help = help.expect("it runs");
    let said = String::from_utf8_lossy(&help.stderr);
    assert!(help.status.code() == Some(1) && said.contains("cannot write to standard output"), "{help:?}");
    // -r implies the DPU's role. No device of this machine has that address.
    let ended = run_it(&["-f", "x", "-p", "03:00.0", "-r", "b1:00.0"]);
    ended.failed(&["dma-copy: DPU: starting", "0000:03:00.0"]);
}
