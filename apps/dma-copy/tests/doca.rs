//! `dma-copy` on the stand-in DOCA SDK: host and DPU as two processes, over DOCA's comm channel.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;

mod pair;

use pair::{Ended, PARTIAL, Place, Running, Side, assert_same, run};
use test_support::hold::Hold;
use test_support::stand_ins;

const CARD: &str = "[[card]]\n";

/// The stand-in's libraries.
fn libraries() -> &'static PathBuf {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| stand_ins::library_dir(&stand_ins::doca_emu_prefix()))
}

/// Starts one side on the simulated card `card`, with the command for a real card.
fn start(place: &Place, side: Side, card: &str, args: &str) -> Running {
    run(command(place, side, card, args))
}

fn command(place: &Place, side: Side, card: &str, args: &str) -> Command {
    let device = match side {
        Side::Host => "-p 3b:00.0",
        Side::Dpu => "-p 03:00.0 -r 3b:00.0",
    };
    let mut command = place
        .command(side, &format!("{device} -c comch:copy{} --sdk-log-level 10 {args}", std::process::id()));
    command.env("DMA_DOCA_LIB_DIR", libraries()).env("DOCA_EMU", card);
    command
}

/// Starts one side without address randomisation, so that both sides have memory at the same
/// addresses. A sandbox may forbid this; then the test makes an ordinary copy.
fn start_at_fixed_addresses(place: &Place, side: Side, args: &str) -> Running {
    let mut command = command(place, side, CARD, args);
    #[expect(unsafe_code, reason = "sets the personality of the process")]
    let fix_addresses = || {
        // SAFETY: the system call takes no pointers.
        unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        Ok(())
    };
    #[expect(unsafe_code, reason = "runs code between fork and exec")]
    // SAFETY: between fork and exec, the closure only makes one system call: it allocates no memory, and
    // takes no lock that another thread may hold.
    unsafe {
        command.pre_exec(fix_addresses)
    };
    run(command)
}

fn pair(place: &Place, from: Side, card: &str, args: &str) -> (Ended, Ended) {
    let receiver = start(place, from.other(), card, &format!("-f dst {args}"));
    let sender = start(place, from, card, &format!("-f src {args}"));
    (sender.end(), receiver.end())
}

fn copies(place: &Place, from: Side, card: &str, args: &str) -> String {
    let (sender, receiver) = pair(place, from, card, args);
    assert!(sender.status.success() && receiver.status.success(), "{args}: {sender:?} {receiver:?}");
    let line = sender.copied().to_owned();
    receiver.copied();
    assert_same(&place.path("src"), &place.path("dst"));
    fs::remove_file(place.path("dst")).expect("removed");
    line
}

/// All copies are in one test, because they use the same card and service.
#[test]
fn the_card_copies_both_ways() {
    let place = Place::new();
    for from in Side::BOTH {
        for len in [0, 1, 8191, 8192, 8193, 16_384, 100_000] {
            place.file("src", len);
            let line = copies(&place, from, CARD, "--window 16K --chunk 4K");
            assert!(line.contains("engine doca"), "{line}");
        }
        place.file("src", 10_000_000);
        for args in ["", "--checksum none --chunk 8M --window 32M", "--depth 64 --chunk 64K", "--resume"] {
            copies(&place, from, CARD, args);
        }
        // Copies also work on a device with low limits.
        copies(
            &place,
            from,
            &format!("{CARD}max_buf_size = 65536\nmax_tasks = 2\n"),
            "--window 8M --depth 16",
        );
    }

    // The imported memory has the exporter's addresses, at which the importer has memory of its own. The
    // importer must not confuse these memories.
    place.file("src", 20_000_000);
    for from in Side::BOTH {
        let receiver = start_at_fixed_addresses(&place, from.other(), "-f dst --window 16M");
        let sender = start_at_fixed_addresses(&place, from, "-f src --window 16M");
        sender.end().copied();
        receiver.end().copied();
        assert_same(&place.path("src"), &place.path("dst"));
        fs::remove_file(place.path("dst")).expect("removed");
    }

    // The device resets during a copy and recovers: the copy succeeds with retries.
    place.file("src", 1_000_000);
    for from in Side::BOTH {
        for faults in ["reset@7", "fail@9", "reset@20+reset@50"] {
            let line =
                copies(&place, from, &format!("{CARD}faults = \"{faults}\"\n"), "--chunk 4K --window 64K");
            assert!(line.ends_with(" retries") && !line.ends_with(" 0 retries"), "{faults}: {line}");
        }
        // The device fails permanently: both sides end with an error.
        let (sender, receiver) =
            pair(&place, from, &format!("{CARD}faults = \"fail@7-\"\n"), "--chunk 4K --window 64K");
        let (host, dpu) = if from == Side::Host { (sender, receiver) } else { (receiver, sender) };
        dpu.failed(&["DPU: copying bytes by DMA", "DOCA_ERROR"]);
        host.failed(&["the DPU gave up (copying bytes by DMA)"]);
        assert!(!place.path("dst").exists() && !place.path(PARTIAL).exists());
        // The device corrupts bytes: the receiver detects this.
        let (_, receiver) =
            pair(&place, from, &format!("{CARD}faults = \"corrupt@7\"\n"), "--chunk 4K --window 64K");
        receiver.failed(&["verifying what arrived"]);
    }

    // One side is killed: the other side ends, and the copy can be resumed. The receiver holds meanwhile,
    // after its first block, and the sender cannot end without it, because the file exceeds the window.
    place.file("src", 1_000_000);
    for from in Side::BOTH {
        for dies in Side::BOTH {
            let args = "--window 64K --chunk 4K --depth 1 --resume";
            let mut command = command(&place, from.other(), CARD, &format!("-f dst {args}"));
            let mut hold = Hold::at(&mut command, "block");
            let receiver = run(command);
            let sender = start(&place, from, CARD, &format!("-f src {args}"));
            hold.wait("block");
            let (mut killed, other) = if dies == from { (sender, receiver) } else { (receiver, sender) };
            killed.signal(Signal::KILL);
            drop(hold);
            other.end().failed(&[]);
            drop(killed);
            assert!(!place.path("dst").exists());
            assert!(fs::metadata(place.path(PARTIAL)).expect("a partial copy").len() > 0);
            copies(&place, from, CARD, "--resume");
        }
    }

    // Errors name the device.
    let place = Place::new();
    place.file("src", 10);
    let alone = |side, args: &str| {
        let mut command = place.command(side, &format!("--sdk-log-level 10 {args}"));
        command.env("DMA_DOCA_LIB_DIR", libraries()).env("DOCA_EMU", CARD);
        run(command).end()
    };
    alone(Side::Dpu, "-f dst -p 03:00.0 -c comch:copy")
        .failed(&["no function of the host was chosen", "--rep-pci"]);
    alone(Side::Dpu, "-f dst -p 03:00.0 -r 77:00.0 -c comch:copy").failed(&["77:00.0"]);
    alone(Side::Host, "-f src -p 77:00.0 -c comch:copy").failed(&["77:00.0"]);
    // Another run of this program beside this one listens and connects at another name.
    let nobody = format!("comch:nobody{}", std::process::id());
    alone(Side::Host, &format!("-f src -p 3b:00.0 -c {nobody} --timeout 0.5"))
        .failed(&[&format!("no DPU listened on {nobody}")]);
    alone(Side::Dpu, &format!("-f dst -p 03:00.0 -r 3b:00.0 -c {nobody} --timeout 0.5"))
        .failed(&[&format!("no host connected to {nobody}")]);
}
