//! Partial copies: resumed, refused, and their names.

use super::*;

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
            let mut receiver = place.start(Side::Dpu, "-f dst");
            while !place.path("socket").exists() {
                assert!(receiver.child().try_wait().expect("a child").is_none(), "it ends without a socket");
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
