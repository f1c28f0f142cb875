//! Replays every input of the corpus without a fuzzer, also with one byte changed or the end removed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn corpus_and_its_neighbours() {
    for (name, target) in dma_fuzz::TARGETS {
        let inputs = files(root().join("corpus").join(name));
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            println!("{}", path.display());
            let input = std::fs::read(&path).unwrap();
            target(&input);
            // For long inputs, changes only the head and the tail, where parsers find headers and checksums.
            let ends = (0..input.len()).filter(|at| *at < 128 || input.len() - at < 16);
            for at in ends {
                target(&input[..at]);
                for change in [1, 0x20, 0x80, 0xff] {
                    let mut changed = input.clone();
                    changed[at] ^= change;
                    target(&changed);
                }
            }
        }
    }
}

#[test]
fn every_target_is_listed() {
    let mut listed: BTreeSet<_> = dma_fuzz::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let there = files(root().join("fuzz_targets"));
    let there = there.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    if cfg!(feature = "work-queues") {
        assert!(listed.is_subset(&there), "every listed target has a file in fuzz_targets/");
        return;
    }
    listed.insert("doca_work_queues".to_owned());
    assert_eq!(listed, there, "src/lib.rs lists exactly the files in fuzz_targets/");
}
