//! The example `test_card`, which owners of a BlueField run on both sides: it passes on good cards, and
//! fails on faulty ones.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use test_support::{built, stand_ins};

/// A card as published measurements and reports describe it, in virtual time. Its host cannot copy memory
/// that it exported itself.
const BLUEFIELD: &str = "profile = \"bluefield3\"\nclock = \"virtual\"\n";

/// Returns a serial number that no other card has, as a line of a card's description. Without it, the tests
/// and other processes would share one card, and a server's name can be used only once on a card.
fn serial() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("serial = \"card-{}-{}\"\n", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn command(side: &str, card: &str, args: &[&str]) -> Command {
    static LIBRARIES: LazyLock<PathBuf> =
        LazyLock::new(|| stand_ins::library_dir(&stand_ins::doca_emu_prefix()));
    let device = if side == "dpu" { "03:00.0" } else { "3b:00.0" };
    let mut command = Command::new(built::example("test_card"));
    command.args([side, "--pci", device]).args(args);
    command.env("DMA_DOCA_LIB_DIR", &*LIBRARIES).env("DOCA_EMU", card);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs both sides of a card of its own until they end.
fn pair(card: &str, dpu: &[&str], host: &[&str]) -> [Output; 2] {
    let card = serial() + card;
    let dpu = command("dpu", &card, dpu).spawn().unwrap();
    let host = command("host", &card, host).spawn().unwrap();
    [dpu, host].map(|side| side.wait_with_output().unwrap())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the lines of the report that the DPU prints for both sides.
fn report(dpu: &Output) -> Vec<String> {
    let text = text(dpu);
    let report = text.split_once("----- report\n").and_then(|(_, rest)| rest.split_once("----- end"));
    report.unwrap_or_else(|| panic!("no report: {text}")).0.lines().map(str::to_owned).collect()
}

/// Counts the tests of one side that the report shows as passed.
fn passed(lines: &[String], side: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(&format!("{side}: passed "))).count()
}

#[test]
fn a_good_card_passes_over_the_comm_channel() {
    let [dpu, host] = pair(BLUEFIELD, &["--rep", "3b:00.0", "--tests", "pair"], &["--tests", "pair"]);
    assert!(dpu.status.success() && host.status.success(), "{}{}", text(&dpu), text(&host));
    let lines = report(&dpu);
    let own = "host: the host does not copy memory that it exported itself";
    assert!(lines.iter().any(|line| line.starts_with(own)), "{lines:?}");
    assert_eq!((passed(&lines, "DPU"), passed(&lines, "host")), (7, 7), "{lines:#?}");
}

#[test]
fn a_good_card_passes_over_tcp_and_a_wrong_secret_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let secret = |name: &str| {
        let path = dir.path().join(name);
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.as_mut().unwrap().write_all(name.repeat(16).as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (secret("right"), secret("wrong"));
    let listen = ["--tcp", "127.0.0.1:0", "--secret-file", &right, "--tests", "pair"];
    let serial = serial();
    let card = format!("{serial}max_list_len = 1\nmax_buf_size = \"1M\"");
    let mut dpu = command("dpu", &card, &listen).spawn().unwrap();
    let mut lines = BufReader::new(dpu.stdout.take().unwrap()).lines().map(Result::unwrap);
    let waiting = lines.by_ref().find(|line| line.starts_with("waiting")).unwrap();
    let address = waiting.rsplit(' ').next().unwrap();
    let call = |secret: &str, timeout: &str| {
        let args = ["--tcp", address, "--secret-file", secret, "--tests", "pair", "--timeout", timeout];
        command("host", &serial, &args).output().unwrap()
    };
    let host = call(&wrong, "1");
    assert_eq!(host.status.code(), Some(2), "{}", text(&host));
    let host = call(&right, "60");
    assert!(host.status.success(), "{}", text(&host));
    let lines: Vec<String> = lines.collect();
    assert!(dpu.wait().unwrap().success(), "{lines:#?}");
    assert_eq!(
        (passed(&lines, "DPU"), passed(&lines, "host")),
        (7 + 7, 7),
        "both when run and in the report"
    );
}

#[test]
fn a_faulty_card_fails() {
    for fault in ["corrupt@every=9", "fail@every=30"] {
        let card = format!("max_list_len = 4\nfaults = \"{fault}\"\n");
        let [dpu, host] = pair(&card, &["--rep", "3b:00.0", "--tests", "pair"], &["--tests", "pair"]);
        assert_eq!(
            (dpu.status.code(), host.status.code()),
            (Some(1), Some(1)),
            "{}{}",
            text(&dpu),
            text(&host)
        );
        let lines = report(&dpu);
        let failed = |side: &str| lines.iter().any(|line| line.starts_with(&format!("{side}: FAILED ")));
        assert!(failed("DPU") && failed("host"), "{lines:#?}");
    }
}

/// Runs the suite on a device that cannot copy memory that it exported itself.
#[test]
fn a_host_passes_alone() {
    let output = command("host", &(serial() + BLUEFIELD), &["--tests", "alone"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let lines: Vec<String> = text(&output).lines().map(str::to_owned).collect();
    assert_eq!(passed(&lines, "host"), dma_conformance::CASES.len(), "{lines:#?}");
}

#[test]
fn a_missing_side_is_an_error_that_names_it() {
    let output = command("host", &serial(), &["--tests", "pair", "--timeout", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("no server answered"), "{}", text(&output));
    let output = command("dpu", "", &["--tests", "pair"]).output().unwrap();
    assert!(text(&output).contains("--rep"), "{}", text(&output));
}
