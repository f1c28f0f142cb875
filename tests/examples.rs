//! Runs every example without arguments, and checks the last line of its output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use test_support::{built, stand_ins};

/// Examples that need arguments or another process, and have their own tests.
const WITH_ARGUMENTS: [&str; 1] = ["11_copy_dpu"];
/// Directories with code that several examples share.
const SHARED: &str = "common";

/// The beginning of the last line of each example's output.
const LAST_LINES: [(&str, &str); 17] = [
    ("01_first_copy", "cpu copied and filled 1572864 bytes in 2 operations"),
    ("02_choose_engine", "3 of 6 engines opened"),
    ("03_scatter_gather", "sim:profile=ioat: lists of up to 1 segments; 2 operations needed "),
    ("04_async_tokio", "many threads: 100 copies awaited"),
    ("05_errors_and_recovery", "closed: 1 aborted, 0 abandoned"),
    ("06_test_your_code_with_faults", "200 devices, "),
    ("07_share_memory", "exporter: the peer's copy failed after the revocation, and the peer continued"),
    ("08_write_a_backend", "ok: a backend of one file passes all "),
    ("09_local_copy", "This is a sample piece of text"),
    ("10_copy_host", "revoked"),
    ("12_buffer_pool", "1000 messages went through 8 buffers; in use: 0"),
    ("13_metrics", "dma_size_bytes_count{engine=\"ingest\",queue=\"0\"} 24"),
    (
        "14_registered_memory",
        "sim:profile=bluefield3: 65536 bytes copied in place; 1 registration served 10 copies",
    ),
    ("15_checksummed_storage", "sim:profile=dsa: CRC-32C "),
    ("16_device_memory", "32 blocks were copied to device memory and back, through 4 windows"),
    ("17_configured_server", "516484 bytes stored"),
    ("18_load_safetensors", LOADED),
];

/// The output of the example that loads a file into device memory.
const LOADED: &str = "24 tensors, 15237440 bytes: the CRCs of the file, the device and the copy are equal";

#[test]
fn tensors_are_loaded_into_the_memory_of_the_gpu_stand_in() {
    let engine = format!("cuda:0,lib={}", stand_ins::cuda_emu_prefix().join("lib").display());
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(built::example("18_load_safetensors"))
        .args(["--engine", &engine])
        .env("TMPDIR", dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim_end() == LOADED, "{said}{warned}");
}

#[test]
fn every_example_runs_and_shows_what_it_says() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, expected) in LAST_LINES {
        let output = Command::new(built::example(name))
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let warned = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {:?}\n{said}{warned}", output.status);
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with(expected), "{name} ends with {last:?}, not {expected:?}");
    }
}

#[test]
fn every_example_is_in_the_list_and_in_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("a readme");
    let expected: BTreeMap<_, _> = LAST_LINES.into_iter().collect();
    for entry in std::fs::read_dir(root.join("examples")).expect("examples") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if name == SHARED {
            continue;
        }
        let run = expected.contains_key(&*name) || WITH_ARGUMENTS.contains(&&*name);
        assert!(run, "{name} is not run by this test");
        assert!(readme.contains(&format!("`{name}`")), "README.md does not list {name}");
    }
}
