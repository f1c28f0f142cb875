//! Tests of the program from outside: files, output and exit codes.

mod failures;
mod printed;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use test_support::default_signals;

fn bench(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_dma-bench");
    Command::new(program).args(words).stdin(Stdio::null()).output().expect("dma-bench starts")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the results exist")).expect("JSON")
}

/// A short run, in which the figures do not matter.
const SHORT: [&str; 9] = ["run", "--samples", "2", "-t", "0.004", "--warm-up", "0.001", "--footprint", "1M"];

fn run(words: &[&str]) -> Output {
    let all: Vec<&str> = SHORT.iter().chain(words).copied().collect();
    bench(&all)
}

#[test]
fn plots_over_queues_and_segments_have_files() {
    let folder = tempfile::tempdir().unwrap();
    let plots = folder.path().join("plots");
    let plots = plots.to_str().unwrap();
    let of = ["-e", "cpu", "-w", "copy,sg", "-o", "4K", "-q", "2", "-T", "1,2", "-s", "2,4", "-a", "hot"];
    let output = run(&[of.as_slice(), &["--plots", plots]].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    let mut names: Vec<_> =
        fs::read_dir(plots).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n.ends_with(".svg") && !n.contains("-dark"));
    names.sort();
    let mut expected = ["copy-hot", "sg-hot"].map(|of| format!("queues-{of}.svg")).to_vec();
    expected.push("segments-sg-hot.svg".to_owned());
    assert_eq!(names, expected);
}

#[test]
fn memory_on_a_device_is_measured_and_verified_without_memcpy() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (results, csv, page) = (path("r.json"), path("r.csv"), path("r.html"));
    let engine = "sim:profile=dsa,device_memory=64M";
    let of = [
        "-e",
        engine,
        "-d",
        "local,to-device,from-device,on-device,to+from-device",
        "-o",
        "64,4K",
        "-q",
        "4",
    ];
    let output =
        run(&[of.as_slice(), &["-y", "--json", &results, "--csv", &csv, "--report", &page]].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    let value = json(Path::new(&results));
    let cells = value["cells"].as_array().unwrap();
    assert_eq!(value["planned"].as_u64(), Some(2 * (1 + 5)));
    assert_eq!(cells.len(), 2 * (1 + 5), "two sizes: the baseline and five directions");
    for cell in cells {
        assert_eq!(cell["status"], "ok", "{cell}");
        assert!(cell["verified"].as_u64().unwrap() > 0, "{cell}");
        assert_eq!(cell["ratio"].is_null(), cell["direction"] != "local", "{cell}");
    }
    for direction in ["to-device", "from-device", "on-device", "to+from-device"] {
        assert!(out(&output).contains(&format!("copy cold {direction}")), "{}", out(&output));
        let said = format!("[model] {direction}: up to");
        assert!(value["summary"].to_string().contains(&said), "{}", value["summary"]);
        assert_eq!(fs::read_to_string(&csv).unwrap().matches(&format!(",{direction},")).count(), 2);
        let id = format!("id=\"model-throughput-copy-cold-{direction}\"");
        assert!(fs::read_to_string(&page).unwrap().contains(&id));
        assert!(!fs::read_to_string(&page).unwrap().contains(&format!("ratio-copy-cold-{direction}")));
    }
    // Two such results are compared by throughput.
    let output = bench(&["compare", &results, &results, "--all"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("on-device"), "{}", out(&output));
}

#[test]
fn a_rate_is_not_the_throughput_of_memory_on_a_device() {
    let engine = "sim:profile=dsa,device_memory=64M,clock=real";
    let output = run(&["-e", engine, "-d", "to-device", "-o", "4K", "-q", "4", "--rate", "1k"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let said = out(&output);
    assert!(said.contains("Latency at 1.00 k/s") && !said.contains("up to 0.00"), "{said}");
}

#[test]
fn an_engine_without_memory_on_a_device_says_so() {
    let output = run(&["-e", "cpu", "-d", "to-device,on-device", "-o", "64"]);
    assert_eq!(code(&output), 1, "{}", out(&output));
    let said = err(&output);
    assert!(said.contains("cpu: not measured: not possible: cpu has no device memory"), "{said}");
    assert!(said.contains("such as cuda"), "{said}");
    let shown = out(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    let cells = "- cpu copy 64 B q32 b16 to-device cold, cpu copy 64 B q32 b16 on-device cold: not possible: cpu has no";
    assert!(shown.contains(cells), "{shown}");
    assert_eq!(shown.matches("not possible").count(), 1, "the output has each reason once: {shown}");
    assert_eq!(said.matches("cold: not possible").count(), 1, "the messages have each reason once: {said}");
    assert!(
        !out(&output).contains("memcpy"),
        "memcpy is not measured beside device memory: {}",
        out(&output)
    );
}

#[test]
fn a_run_writes_everything_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (results, csv, markdown, page, plots) =
        (path("r.json"), path("r.csv"), path("r.md"), path("r.html"), path("plots"));
    let output = run(&[
        "-e",
        "cpu",
        "-e",
        "sim:profile=dsa",
        "-o",
        "64,4K,64K",
        "-q",
        "1,4",
        "-a",
        "cold,hot",
        "--json",
        &results,
        "--csv",
        &csv,
        "--markdown",
        &markdown,
        "--report",
        &page,
        "--plots",
        &plots,
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let table = out(&output);
    let (measured, models) = table.split_once("Models:").expect("models have a separate table");
    assert!(measured.contains("memcpy") && !measured.contains("sim:"), "{measured}");
    assert!(models.contains("LightDSA"), "models are shown with their source: {models}");

    let value = json(Path::new(&results));
    assert_eq!((value["schema"].as_str(), value["version"].as_u64()), (Some("dma-bench/results"), Some(3)));
    let cells = value["cells"].as_array().unwrap();
    assert_eq!(
        cells.len(),
        3 * (2 * 2 * 2) + 3 + 3 * 2,
        "the cells are engines by footprint and depth, and their baselines"
    );
    for cell in cells {
        assert_eq!(cell["status"], "ok", "{cell}");
        assert!(cell["verified"].as_u64().unwrap() > 0, "some operations are always verified: {cell}");
        assert!(cell["ops_per_second"]["median"].as_f64().unwrap() > 0.0);
        let paired = cell["ratio"]["samples"].as_array().unwrap().len();
        assert!(
            paired == 2 || (paired > 2 && cell["engine"] == "memcpy"),
            "every sample has a ratio: {cell}"
        );
        assert!(cell["left_out"].is_u64() && cell["run_delay"].is_f64(), "{cell}");
        assert!(cell["latency"]["p999"].as_u64() >= cell["latency"]["p50"].as_u64());
        let virtual_clock = cell["engine"] == "sim:profile=dsa";
        assert_eq!(cell["model"].as_bool(), Some(virtual_clock));
        assert_eq!(cell["cpu_ns_per_op"].is_null(), virtual_clock, "a simulated device has no CPU time");
        if cell["engine"] != "memcpy" {
            let bells = cell["doorbells_per_op"].as_f64().unwrap();
            let batch = cell["batch"].as_f64().unwrap();
            assert!((bells - 1.0 / batch).abs() < 0.2, "{bells} doorbells for each of {batch}: {cell}");
        }
    }
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), cells.len() + 1);
    assert!(fs::read_to_string(&markdown).unwrap().contains("### copy cold"));
    assert!(fs::read_to_string(&page).unwrap().contains("</html>"));
    let png = fs::read(Path::new(&plots).join("throughput-copy-cold.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 10_000);
    let svg = fs::read_to_string(Path::new(&plots).join("throughput-copy-cold-dark.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("4\u{a0}KiB"));

    // The campaign inside can be run again.
    for format in ["table", "markdown", "csv", "json"] {
        let shown = bench(&["show", &results, "--format", format]);
        assert_eq!(code(&shown), 0, "{}", err(&shown));
        assert!(!shown.stdout.is_empty());
    }
    let same = bench(&["compare", &results, &results, "--fail-if-slower", "1%"]);
    assert_eq!(code(&same), 0, "{}", out(&same));
    let mut slower = value.clone();
    for cell in slower["cells"].as_array_mut().unwrap() {
        for key in ["min", "median", "max"] {
            let figure = &mut cell["ratio"][key];
            *figure = Value::from(figure.as_f64().unwrap() / 2.0);
        }
        cell["ratio"]["samples"] = vec![0.1 * cell["ratio"]["min"].as_f64().unwrap(); 40].into();
    }
    let mut wrong = value.clone();
    for cell in wrong["cells"].as_array_mut().unwrap().iter_mut().filter(|c| c["engine"] == "cpu") {
        cell["status"] = "wrong".into();
        for key in ["ratio", "bytes_per_second", "ops_per_second"] {
            cell[key] = Value::Null;
        }
    }
    fs::write(path("wrong.json"), wrong.to_string()).unwrap();
    let lost = bench(&["compare", &results, &path("wrong.json"), "--fail-if-slower", "5%"]);
    assert_eq!(code(&lost), 4, "{}", out(&lost));
    assert!(out(&lost).contains("was ok and is wrong, without figures"), "{}", out(&lost));
    assert!(err(&lost).contains("12 cells ended worse"), "{}", err(&lost));
    assert_eq!(
        code(&bench(&["compare", &results, &path("wrong.json")])),
        0,
        "without --fail-if-slower, the exit code is 0"
    );
    // Two samples are too few to decide, and an undecided comparison does not pass.
    let mut half = value.clone();
    for cell in half["cells"].as_array_mut().unwrap().iter_mut().filter(|c| c["engine"] == "cpu") {
        cell["ratio"]["median"] = Value::from(cell["ratio"]["median"].as_f64().unwrap() / 2.0);
    }
    fs::write(path("half.json"), half.to_string()).unwrap();
    let untold = bench(&["compare", &results, &path("half.json"), "--fail-if-slower", "5%"]);
    assert_eq!(code(&untold), 4, "{}", out(&untold));
    assert!(
        err(&untold).contains("may be noise with so few") && out(&untold).contains("cannot be told"),
        "{}",
        err(&untold)
    );
    let mut longer = value;
    // The campaign has the same number of samples as the cells.
    for results in [&mut slower, &mut longer] {
        results["campaign"]["samples"] = 40.into();
        for cell in results["cells"].as_array_mut().unwrap() {
            cell["passes"] = 24.into();
        }
    }
    for cell in longer["cells"].as_array_mut().unwrap() {
        let median = cell["ratio"]["median"].as_f64().unwrap();
        cell["ratio"]["samples"] =
            (0..40).map(|i| median * (1.0 + f64::from(i) / 1000.0)).collect::<Vec<_>>().into();
    }
    let (slow, long) = (path("slow.json"), path("long.json"));
    fs::write(&slow, slower.to_string()).unwrap();
    fs::write(&long, longer.to_string()).unwrap();
    let worse = bench(&["compare", &long, &slow, "--fail-if-slower", "5%"]);
    assert_eq!(code(&worse), 4, "{}", out(&worse));
    assert!(out(&worse).contains("slower"));
    assert_eq!(code(&bench(&["compare", &slow, &long, "--fail-if-slower", "5%"])), 0, "faster cells pass");
    for format in ["table", "markdown", "csv", "json"] {
        let worse = bench(&["compare", &long, &slow, "--fail-if-slower", "5%", "--format", format]);
        assert_eq!(code(&worse), 4, "{format}: {}", out(&worse));
        assert!(err(&worse).contains("cells are slower by more than 5 %"), "{format}: {}", err(&worse));
        let text = out(&worse);
        assert!(text.contains("slower"), "{format}: {text}");
        if format == "json" {
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["fail_if_slower"]["passes"], false, "{text}");
        }
        if format == "csv" {
            let fields: Vec<usize> = text.lines().map(|l| l.matches(',').count()).collect();
            assert!(fields.iter().all(|n| *n == fields[0]) && fields.len() > 30, "{text}");
            assert!(err(&worse).contains("noise within these two runs"), "{}", err(&worse));
        }
    }
}

#[test]
fn every_operation_and_direction_is_measured_and_verified() {
    let number = test_support::cpus::first().1.to_string();
    let node = format!("node{number}");
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.json").display().to_string();
    for words in [
        &[
            "-e",
            "cpu",
            "-e",
            "sim:latency=1us",
            "-w",
            "copy,fill,sg,gather:5,scatter:64",
            "-s",
            "2,8",
            "-a",
            "hot,cold,random",
        ][..],
        &["-e", "cpu", "-w", "compare,crc32c,copy-crc32c,copy-to-both", "-a", "hot,cold,random"],
        &["-e", "cpu", "-w", "compare,crc32c,copy-crc32c,copy-to-both", "-d", "pull", "-y"],
        &[
            "-e",
            "cpu",
            "-w",
            "compare,copy-crc32c,copy-to-both",
            "-d",
            "push",
            "-T",
            "2",
            "--peer",
            "process",
        ],
        &[
            "-e",
            "cpu",
            "-e",
            "sim:profile=bluefield3",
            "-d",
            "local,push,pull,push+pull,local+back",
            "-a",
            "cold",
        ],
        &["-e", "cpu", "-e", "sim:latency=1us", "-T", "1,3", "-y"],
        &["-e", "cpu", "-e", "sim:latency=1us", "-n", "17", "-q", "5", "-b", "3"],
        // Some cells have more queues than the device has channels.
        &["-e", "sim:profile=bluefield3", "-q", "1..256", "-b", "1", "-d", "push,pull", "-n", "20"],
        // The operation is longer than the device's maximum.
        &["-e", "sim:profile=bluefield3", "-o", "5M", "-y", "-q", "2", "-n", "8"],
        &["-e", "cpu", "--rate", "20k"],
        &["-e", "cpu", "-e", "sim:profile=bluefield3", "-d", "push,pull", "--peer", "process", "-y"],
        &["-e", "cpu", "--cpus", &node, "--numa", &number, "-T", "1,2"],
    ] {
        let sizes = if words.contains(&"-o") { "" } else { "1000,64K" };
        let sizes = if sizes.is_empty() { vec![] } else { vec!["-o", sizes] };
        let short = if words.contains(&"-n") {
            vec!["run", "--samples", "2", "--warm-up", "0.001", "--footprint", "1M"]
        } else {
            SHORT.to_vec()
        };
        let output = bench(&[&short, words, &sizes, &["--json", &results, "--quiet"]].concat());
        assert_eq!(code(&output), 0, "{words:?}: {}\n{}", err(&output), out(&output));
        for cell in json(Path::new(&results))["cells"].as_array().unwrap() {
            assert_eq!(cell["status"], "ok", "{cell}");
            let all = words.contains(&"-y") && cell["engine"] != "memcpy";
            assert!(cell["verified"].as_u64().unwrap() > 0, "{cell}");
            assert!(!all || cell["verified"] == cell["ops"], "{cell}");
        }
    }
}
