//! Tests with installed libraries of SPDK, which are found by their directory and loaded.

mod standin;

use dma_core::{DmaEngine, ErrorKind};
use dma_ioat::{IoatEngine, IoatOptions, discover};
use standin::on_machine;
use test_support::stand_ins;

/// Returns the directory of the stand-in's libraries.
fn lib_dir() -> std::path::PathBuf {
    stand_ins::spdk_emu_prefix().join("lib")
}

#[test]
fn conforms_when_it_is_loaded() {
    let dir = lib_dir();
    on_machine("conforms_when_it_is_loaded", "", || {
        let engine = IoatEngine::open(&IoatOptions::new().with_lib_dir(&dir)).unwrap();
        let info = engine.info();
        assert_eq!((info.backend, info.limits.max_queues), ("ioat", Some(8)));
        assert!(info.version.starts_with("SPDK 2"), "{info:?}");
        assert!(info.device.contains("0000:00:04.0 to 0000:00:04.7"), "{info:?}");
        dma_conformance::run_all(&engine);

        // The prefix can be given instead of the directory. A second SPDK is refused in this
        // process.
        let again = IoatOptions::new().with_lib_dir(&dir).with_address("00:04.7".parse().unwrap());
        assert_eq!(IoatEngine::open(&again).unwrap().info().limits.max_queues, Some(1));
        let other = IoatEngine::open(&IoatOptions::new().with_lib_dir("/nowhere")).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::InUse);
        assert!(other.to_string().contains("`lib=/nowhere`"), "{other}");
    });
}

#[test]
fn discovery_lists_every_channel() {
    let dir = lib_dir();
    on_machine("discovery_lists_every_channel", "", || {
        let found = discover(&IoatOptions::new().with_lib_dir(&dir));
        let names: Vec<_> = found.iter().map(|d| d.name.to_string()).collect();
        assert_eq!(names.len(), 8);
        assert_eq!((&*names[0], &*names[7]), ("ioat:0000:00:04.0", "ioat:0000:00:04.7"));
        for channel in &found {
            let info = channel.info.as_ref().unwrap();
            assert_eq!(format!("ioat:{}", info.device), channel.name.to_string());
        }
    });
}

#[test]
fn all_taken_and_none_there_are_told_apart() {
    let dir = lib_dir();
    let function = "[[socket]]\n[[socket.function]]\npci = '00:04.0'\n";
    for (machine, kind, says) in [
        (format!("{function}taken = true\n"), ErrorKind::InUse, "another process"),
        (format!("{function}driver = 'ioatdma'\n"), ErrorKind::NotFound, "no I/OAT device found"),
    ] {
        on_machine("all_taken_and_none_there_are_told_apart", &machine, || {
            let error = IoatEngine::open(&IoatOptions::new().with_lib_dir(&dir)).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        });
    }
}
