//! Failing engines, refused arguments, a full disk and signals.

use super::*;

#[test]
fn an_operation_that_an_engine_lacks_is_refused_by_name() {
    for (op, supplied) in
        [("compare", "executes it on one CPU core"), ("copy-to-both", "executes it as two copies")]
    {
        let output = bench(
            &[&SHORT[..], &["-e", "cpu", "-e", "sim:profile=ioat", "-w", op, "--format", "json"]].concat(),
        );
        let results: Value = serde_json::from_str(&out(&output)).unwrap();
        let cells = results["cells"].as_array().unwrap();
        let lacks: Vec<&Value> = cells.iter().filter(|cell| cell["status"] == "unsupported").collect();
        assert!(
            !lacks.is_empty() && lacks.iter().all(|cell| cell["engine"] == "sim:profile=ioat"),
            "{results}"
        );
        let says = format!("this device has no {op}; `dma::Queue` {supplied}");
        assert!(lacks.iter().all(|cell| cell["message"].as_str().unwrap().contains(&says)), "{lacks:?}");
    }
    let pushed = bench(&["run", "-e", "cpu", "-w", "crc32c", "-d", "push"]);
    assert!(code(&pushed) == 2 && err(&pushed).contains("local, pull, from-device"), "{}", err(&pushed));
}

#[test]
fn an_engine_that_fails_costs_only_its_own_cells() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.json").display().to_string();
    for (engine, says) in [
        ("sim:latency=1us,faults=gone@100", "device lost"),
        ("sim:latency=1us,faults=stick@100", "none completed"),
        ("sim:latency=1us,faults=fail@100", "device fault"),
        ("sim:profile=bluefield3,faults=lose@100", "none completed"),
        ("sim:clock=real,faults=stick@20", "none completed"),
    ] {
        let output =
            run(&["-e", engine, "-e", "cpu", "-o", "64,4K", "-q", "8", "--stall", "0.2", "--json", &results]);
        assert_eq!(code(&output), 1, "{engine}: {}", err(&output));
        let value = json(Path::new(&results));
        let cells = value["cells"].as_array().unwrap();
        let of = |name: &'static str| cells.iter().filter(move |c| c["engine"] == name);
        assert!(
            of("cpu").count() == 2 && of("cpu").all(|c| c["status"] == "ok"),
            "{engine}: the rest is measured"
        );
        let failed =
            cells.iter().find(|c| c["status"] == "failed").unwrap_or_else(|| panic!("{engine}: {cells:?}"));
        let message = failed["message"].as_str().unwrap();
        assert!(message.contains(says), "{engine}: {message}");
        assert!(out(&output).contains(says), "{engine}: the table shows the failure");
    }
}

#[test]
fn bytes_that_do_not_arrive_are_not_overlooked() {
    for words in [&["-q", "4"][..], &["-q", "4", "-y", "-a", "hot"]] {
        let output =
            run(&[&["-e", "sim:latency=1us,faults=corrupt:p=1.0", "-e", "cpu", "-o", "4K"], words].concat());
        assert_eq!(code(&output), 3, "{}", err(&output));
        let said = err(&output);
        assert!(
            said.contains("VERIFICATION FAILED") && said.contains("first difference at offset"),
            "{said}"
        );
    }
    // One wrong operation in thousands is found if all are verified.
    let output = run(&["-e", "sim:latency=1us,faults=corrupt@100", "-o", "4K", "-q", "4", "-y", "-a", "hot"]);
    assert_eq!(code(&output), 3, "{}", err(&output));
}

#[test]
fn senseless_arguments_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let campaign = path("c.toml", "[[sweeps]]\nsizes = '4Q'");
    let other = path("other.json", "{\"schema\": \"dma-bench/results\", \"version\": 99, \"tool\": \"9.9\"}");
    let cut = path("cut.json", "{\"schema\": \"dma-bench/results\", \"vers");
    for (words, exit, says) in [
        (&["run", "-e", "cpo"][..], 2, "did you mean `cpu`"),
        (&["run", "-e", "sim:profile=bluefield9"], 2, "bluefield3"),
        (&["run", "-o", "8..4"], 2, "smaller end first"),
        (&["run", "-e", "cpu", "-o", "16G"], 2, "memory"),
        (&["run", "-e", "sim", "--rate", "1k"], 2, "clock=real"),
        (&["run", "--campaign", &campaign], 2, "4Q"),
        (&["run", "-e", "cpu", "--numa", "999"], 2, "--numa 999: not found: there is no NUMA node 999"),
        (&["run", "-e", "cpu", "--numa", "0,999"], 2, "--numa 0,999: not found: there is no NUMA node 999"),
        (&["run", "-e", "cpu", "--numa", "0,0", "--peer", "a:1", "--secret-file", "x"], 2, "give one node"),
        (&["run", "--json", "/nowhere/r.json"], 2, "/nowhere"),
        (&["report", &other, "-o", "x.html"], 2, "version 99"),
        (&["compare", &cut, &cut], 2, "cut off"),
        (&["compare", &cut, &cut, "--fail-if-slower", "-5%"], 2, "`-5%` is less than 0"),
        (&["show", "/nowhere/r.json"], 2, "/nowhere/r.json"),
        (&["doctor", "abacus"], 2, "there are: auto, cpu"),
        (&["profiles", "bluefield9"], 2, "published figures: bluefield2"),
    ] {
        let output = bench(words);
        assert_eq!(code(&output), exit, "{words:?}: {}", err(&output));
        assert!(err(&output).contains(says), "{words:?}: {}", err(&output));
    }
}

#[test]
fn a_full_disk_costs_the_file_alone() {
    let output = run(&["-e", "cpu", "-o", "4K", "--json", "/dev/full"]);
    assert_eq!(code(&output), 1, "{}", err(&output));
    assert!(
        err(&output).contains("/dev/full") && err(&output).contains("free some space"),
        "{}",
        err(&output)
    );
    assert!(out(&output).contains("copy cold"), "the figures are still printed");
}

// Release builds have no hold points.
#[cfg(debug_assertions)]
#[test]
fn ctrl_c_keeps_what_was_measured() {
    use test_support::hold::Hold;

    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_dma-bench"))
        .args(["run", "-e", "cpu", "-o", "64,4K", "--samples", "1000000000000", "--json"])
        .arg(&results)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "the number of samples is refused");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dma-bench"));
    let mut hold = Hold::at(&mut command, "sample,operations");
    let child = default_signals::default_signals(&mut command)
        .args([
            "run",
            "-e",
            "cpu",
            "-o",
            "64",
            "--samples",
            "10000",
            "-t",
            "100",
            "--warm-up",
            "0.001",
            "--footprint",
            "1M",
            "--json",
        ])
        .arg(&results)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(command);
    hold.until("sample");
    hold.answer("");
    hold.until("operations");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", err(&output));
    assert!(err(&output).contains("interrupted"), "{}", err(&output));
    assert!(out(&output).contains("INTERRUPTED"));
    let value = json(&results);
    assert_eq!(value["interrupted"], true);
    let cells = value["cells"].as_array().unwrap();
    assert!(
        cells.iter().any(|c| c["status"] == "interrupted" && !c["ops_per_second"].is_null()),
        "{cells:?}"
    );
}
