//! Every numbered example runs to its end, and says what it showed.

mod built;

use std::process::Command;

fn run(name: &str, says: &str) {
    let output = Command::new(built::example(name)).output().expect("cargo test builds the examples");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} failed:\n{out}\n{err}");
    assert!(out.contains(says), "{name} should say {says:?}:\n{out}");
}

macro_rules! examples {
    ($($test:ident: $name:literal says $says:literal),+ $(,)?) => {
        $(
            #[test]
            fn $test() {
                run($name, $says);
            }
        )+

        #[test]
        fn none_is_forgotten() {
            let tested = [$($name),+];
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            for entry in std::fs::read_dir(folder).expect("the examples' folder") {
                let name = entry.expect("readable").file_name().into_string().expect("text");
                // The others are whole programs, with tests of their own.
                if let Some(name) = name.strip_suffix(".rs") {
                    assert!(tested.contains(&name), "{name} is not tested here");
                }
            }
        }
    };
}

examples! {
    first_copy: "01_first_copy" says "copied and filled 1572864 bytes",
    choose_engine: "02_choose_engine" says "did you mean `cpu`?",
    scatter_gather: "03_scatter_gather" says "lists of up to 1 segments; 2 operations took 7 descriptors",
    async_tokio: "04_async_tokio" says "many threads: 100 copies awaited",
    errors_and_recovery: "05_errors_and_recovery" says "closed: 1 aborted, 0 abandoned",
    test_your_code_with_faults: "06_test_your_code_with_faults" says "every byte arrived",
    share_memory: "07_share_memory" says "the peer saw the revocation as an error",
    write_a_backend: "08_write_a_backend" says "passes all 32 cases",
}
