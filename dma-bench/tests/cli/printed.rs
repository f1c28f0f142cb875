//! Lists, scripts, pages and campaigns that the program prints.

use super::*;

#[test]
fn a_campaign_is_printed_changed_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    for preset in ["quick", "full", "latency", "knee", "crossover"] {
        let printed = bench(&["campaign", preset]);
        assert_eq!(code(&printed), 0);
        fs::write(&file, &printed.stdout).unwrap();
        let words = [
            "--campaign",
            file.to_str().unwrap(),
            "-e",
            "cpu",
            "-o",
            "64",
            "-q",
            "1",
            "-b",
            "1",
            "-d",
            "local",
            "-w",
            "copy",
        ];
        let output = run(&[&words[..], &["--quiet"]].concat());
        assert_eq!(code(&output), 0, "{preset}: {}", err(&output));
    }
}

#[test]
fn lists_scripts_and_pages_are_printed() {
    let list = bench(&["list", "--format", "json"]);
    let engines: Value = serde_json::from_slice(&list.stdout).unwrap();
    assert!(engines.as_array().unwrap().iter().any(|e| e["name"] == "cpu" && e["usable"] == true));
    assert_eq!(code(&bench(&["doctor", "cpu", "sim"])), 0);
    let doctor: Value = serde_json::from_slice(&bench(&["doctor", "--format", "json"]).stdout).unwrap();
    assert!(doctor.as_array().unwrap().iter().all(|b| !b["findings"].as_array().unwrap().is_empty()));
    for shell in ["bash", "zsh", "fish"] {
        let script = bench(&["completions", shell]);
        assert!(out(&script).contains("dma-bench") && out(&script).contains("compare"), "{shell}");
    }
    // This is the call that bash makes when Tab is pressed after `--preset`.
    let script = out(&bench(&["completions", "bash"]));
    let ask = "COMP_WORDS=(dma-bench run --preset ''); COMP_CWORD=3\n_dma__bench dma-bench '' --preset\necho \"${COMPREPLY[*]}\"";
    match Command::new("bash").args(["--norc", "-c", &format!("{script}\n{ask}")]).output() {
        Ok(answer) => assert_eq!(out(&answer).trim(), "quick full latency knee crossover", "{answer:?}"),
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "bash is missing, or the completion runs")
        }
    }
    let page = out(&bench(&["man"]));
    assert!(
        page.contains(".TH dma-bench") && page.contains(".SH EXAMPLES") && !page.contains("bench\\-help"),
        "there is no such page"
    );
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(code(&bench(&["man", "-o", folder.path().to_str().unwrap()])), 0);
    assert!(folder.path().join("dma-bench-run.1").is_file());
    let profiles = bench(&["profiles", "dsa", "--format", "csv"]);
    assert_eq!(code(&profiles), 0);
    assert_eq!(out(&profiles).lines().count(), 34);
    for command in [
        "list",
        "doctor",
        "run",
        "report",
        "show",
        "compare",
        "profiles",
        "campaign",
        "schema",
        "completions",
        "man",
    ] {
        let help = out(&bench(&[command, "--help"]));
        assert!(help.contains("Example"), "{command} --help has examples: {help}");
    }
}

/// A note that is printed before the live view begins is not overwritten by it.
#[test]
fn notes_are_shown_on_a_terminal() {
    let program = env!("CARGO_BIN_EXE_dma-bench");
    let words = "run -e cpu:threads=0 -o 64 -q 1 -b 2 -t 0.004 --samples 2 --warm-up 0.001 --footprint 1M --format csv";
    let mut script = Command::new("script");
    script
        .args(["-qec", &format!("\"$PROGRAM\" {words}"), "/dev/null"])
        .env("PROGRAM", program)
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    match script.output() {
        Ok(shown) => {
            let shown = out(&shown);
            assert!(
                shown.contains("note: 2 operations for each doorbell") && shown.contains("Ctrl-C"),
                "{shown}"
            );
        }
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "the command `script` is missing, or runs")
        }
    }
}

#[test]
fn a_page_names_machines_apart_and_takes_no_file_twice() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (a, b, page) = (at("hostA/quick.json"), at("hostB/quick.json"), at("page.html"));
    for host in ["hostA", "hostB"] {
        fs::create_dir(folder.path().join(host)).unwrap();
    }
    let first = run(&["-e", "cpu", "-o", "64", "-q", "1", "-a", "hot", "--json", &a]);
    assert_eq!(code(&first), 0, "{}", err(&first));
    fs::copy(&a, &b).unwrap();
    let merged = bench(&["report", &a, &b, "-o", &page]);
    assert_eq!(code(&merged), 0, "{}", err(&merged));
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains(&a) && text.contains(&b), "{text}");
    let other_spelling = at("hostB/../hostA/quick.json");
    for again in [&a, &other_spelling] {
        let twice = bench(&["report", &a, again, "-o", &page]);
        assert_eq!(code(&twice), 2, "{}", out(&twice));
        assert!(err(&twice).contains("is given twice"), "{}", err(&twice));
    }
}
