//! Devices that reset, fail or corrupt bytes, and sides that do not fit.

use super::*;

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
    symlink("nowhere", place.path("link")).expect("a link");
    for side in Side::BOTH {
        place.start(side, "-f dir").end().failed(&["dir is a directory"]);
        place.start(side, "-f /dev/null").end().failed(&["/dev/null is a device"]);
        place.start(side, "-f src -e sim:sed=1").end().refused(&["seed"]);
        place.start(side, "-f src -e warp").end().refused(&["unknown engine `warp`"]);
        place.start(side, "-f missing/dst").end().failed(&["the directory missing does not exist"]);
        place.start(side, "-f link").end().failed(&["link is a dangling link"]);
        place.start(side, "-f dst/").end().failed(&["names no file"]);
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
    let copy = |from, faults, says: &str| {
        let place = Place::new();
        place.file("src", 400_000);
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
    };
    // At the same time, because the pairs spend most of their time waiting.
    std::thread::scope(|scope| {
        for from in Side::BOTH {
            for (faults, says) in [
                ("fail@7-", "device fault"),
                ("gone@7", "device"),
                ("refuse", "copying bytes by DMA"),
                ("lose@5", "completed nothing for 0.5 s"),
                ("stick@5", "completed nothing for 0.5 s"),
            ] {
                scope.spawn(move || copy(from, faults, says));
            }
        }
    });
}

#[test]
fn corruption_is_found() {
    let place = Place::new();
    place.file("src", 400_000);
    for from in Side::BOTH {
        {
            let args = "-e sim:faults=corrupt@7 --chunk 4K --window 64K --checksum xxh3";
            let (sender, receiver) = place.pair(from, args);
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
