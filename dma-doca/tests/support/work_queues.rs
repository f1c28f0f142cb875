//! Tests that run once for each generation with work queues.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use dma_core::{
    Access, BufferMut, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, ExportDescriptor, MemoryRequest,
    QueueOptions,
};
use dma_doca::{DocaEngine, DocaOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use test_support::{counting, stand_ins};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

static DIR: LazyLock<PathBuf> =
    LazyLock::new(|| stand_ins::library_dir(&stand_ins::doca_emu_generation(crate::GENERATION)));

fn open(address: &str, dir: &Path) -> DocaEngine {
    let options = DocaOptions::new().with_address(address.parse().unwrap()).with_lib_dir(dir);
    DocaEngine::open(&options).unwrap()
}

fn engine() -> DocaEngine {
    open("03:00.0", &DIR)
}

dma_conformance::conformance_tests!(conformance, engine());

#[test]
fn the_engine_says_what_it_runs_on() {
    let engine = engine();
    assert!(
        engine.info().version.starts_with(&format!("DOCA {}.00", crate::GENERATION)),
        "{:?}",
        engine.info()
    );
    let capabilities = engine.info().capabilities;
    assert!(capabilities.contains(Capabilities::REGISTER | Capabilities::EXPORT | Capabilities::IMPORT));
    let options = DocaOptions::new().with_lib_dir(&*DIR);
    let devices = dma_doca::discover_with(&options).unwrap();
    assert_eq!(devices.len(), 6);
    assert_eq!(devices[0].address, "0000:03:00.0");
    assert!(devices[0].representors.iter().any(|rep| rep.address == "0000:3b:00.0"), "{devices:?}");
    // These versions lack the comm channel of later ones.
    let none = dma_doca::comch::Client::new(&options, "name").unwrap_err();
    assert_eq!(none.kind(), ErrorKind::MissingSdk, "{none}");
}

#[test]
fn a_card_with_few_tasks_says_so() {
    let _ = &*DIR;
    let output = part("few_tasks").env(CARD, "1").env("DOCA_EMU", "max_tasks = 2").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The card has only two tasks, and this generation has no call that reports their maximum number.
#[test]
#[ignore = "a part of the other test, in a separate process"]
fn few_tasks() {
    if std::env::var_os(CARD).is_none() {
        return;
    }
    let engine = engine();
    let e = engine.open_queue(&QueueOptions::new().with_depth(3)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutOfResources, "{e}");
    assert!(e.hint().contains("smaller depth"), "{e}");
    let queue = engine.open_queue(&QueueOptions::new().with_depth(2)).unwrap();
    queue.copy(engine.allocate(9).unwrap(), engine.allocate(9).unwrap()).unwrap().wait().unwrap();
}

#[test]
fn copies_allocate_nothing() {
    let engine = engine();
    let queue = engine.open_queue(&QueueOptions::new().with_depth(32)).unwrap();
    let mut pair = Some((engine.allocate(4096).unwrap(), engine.allocate(4096).unwrap()));
    let mut round = || {
        let (src, dst) = pair.take().unwrap();
        pair = Some(queue.copy(src, dst).unwrap().wait().unwrap());
    };
    (0..1000).for_each(|_| round());
    let before = counting::of_thread();
    (0..1000).for_each(|_| round());
    assert_eq!(counting::of_thread() - before, 0);
}

const LEN: usize = 2000;
const CARD: &str = "DMA_DOCA_TEST_CARD";

/// Random programs on the card that the environment describes: every copy that is reported as done has
/// written its bytes, and no other byte has changed.
#[test]
#[ignore = "a part of the other test, in a separate process"]
fn programs_on_a_card() {
    if std::env::var_os(CARD).is_none() {
        return;
    }
    let config = Config { cases: 20, failure_persistence: None, ..Config::default() };
    let range = || (0..4_usize, 0..LEN, 1..LEN);
    let step = (range(), range(), 1..5_usize, any::<u8>());
    let steps = prop::collection::vec(step, 1..60);
    TestRunner::new(config)
        .run(&steps, |steps| {
            let engine = engine();
            let options = QueueOptions::new().with_depth(16).with_stall_timeout(Duration::from_secs(60));
            let mut queue = engine.open_queue(&options).unwrap();
            let mut expected: Vec<Vec<u8>> = (1..5).map(|n| vec![n; LEN]).collect();
            let mut buffers: Vec<Option<BufferMut>> = (1..5)
                .map(|n| {
                    let mut buffer = engine.allocate(LEN).unwrap();
                    buffer.fill(n);
                    Some(buffer)
                })
                .collect();
            for ((from, at, len), (to, to_at, _), pieces, seed) in steps {
                if from == to {
                    let buffer = buffers[from].as_mut().unwrap();
                    buffer[at] = seed;
                    expected[from][at] = seed;
                    continue;
                }
                let len = len.min(LEN - at).min(LEN - to_at);
                let (mut src, mut dst) = (buffers[from].take().unwrap(), buffers[to].take().unwrap());
                let (src_rest, dst_rest) = (src.split_off(at), dst.split_off(to_at));
                let (mut src_mid, mut dst_mid) = (src_rest, dst_rest);
                let (src_end, dst_end) = (src_mid.split_off(len), dst_mid.split_off(len));
                // Split the copy into pieces, which are in flight at the same time.
                let piece = len.div_ceil(pieces).max(1);
                let mut flights = Vec::new();
                while !src_mid.is_empty() {
                    let cut = piece.min(src_mid.len());
                    let (src_next, dst_next) = (src_mid.split_off(cut), dst_mid.split_off(cut));
                    flights.push((queue.copy(src_mid, dst_mid).unwrap(), cut));
                    (src_mid, dst_mid) = (src_next, dst_next);
                }
                queue.flush();
                let (mut start, mut lost) = (0, false);
                let (mut src, mut dst) = (src, dst);
                for (flight, cut) in flights {
                    match flight.wait() {
                        Ok((src_piece, dst_piece)) => {
                            let bytes = expected[from][at + start..][..cut].to_vec();
                            prop_assert_eq!(&dst_piece[..], &bytes[..]);
                            prop_assert_eq!(&src_piece[..], &bytes[..]);
                            expected[to][to_at + start..][..cut].copy_from_slice(&bytes);
                            if !lost {
                                src.unsplit(src_piece).unwrap();
                                dst.unsplit(dst_piece).unwrap();
                            }
                        }
                        Err(e) => {
                            let known = matches!(e.kind(), ErrorKind::DeviceFault | ErrorKind::Aborted);
                            prop_assert!(known, "{}", e);
                            lost = true;
                        }
                    }
                    start += cut;
                }
                if lost {
                    // Replace both buffers, because the destination's bytes are unknown.
                    for (n, bytes) in [(from, &mut expected[from].clone()), (to, &mut vec![0; LEN])] {
                        let mut buffer = engine.allocate(LEN).unwrap();
                        buffer.copy_from_slice(bytes);
                        expected[n].clone_from(bytes);
                        buffers[n] = Some(buffer);
                    }
                    continue;
                }
                src.unsplit(src_end).unwrap();
                dst.unsplit(dst_end).unwrap();
                prop_assert_eq!(&src[..], &expected[from][..]);
                prop_assert_eq!(&dst[..], &expected[to][..]);
                (buffers[from], buffers[to]) = (Some(src), Some(dst));
                if seed == 0 {
                    queue = engine.open_queue(&options).unwrap();
                }
            }
            prop_assert_eq!(queue.close(Duration::from_secs(60)).abandoned, 0);
            Ok(())
        })
        .unwrap();
}

/// Makes a command that runs one ignored test of this program.
fn part(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("work_queues::{name}"), "--ignored", "--nocapture"]);
    command.env_remove("DOCA_EMU_CONFIG");
    command
}

#[test]
fn programs_leave_what_they_should_on_every_card() {
    let _ = &*DIR;
    for card in [
        "",
        "max_list_len = 1\nmax_buf_size = 64\n",
        "max_list_len = 3\nmax_buf_size = 500\nqueue_depth = 3\n",
        "profile = \"bluefield3\"\nclock = \"virtual\"\n",
        "faults = \"reset@7\"\n",
        "faults = \"fail:p=0.1\"\nmax_list_len = 4\n",
        "faults = \"reset:p=0.05+refuse@4-6\"\nprofile = \"bluefield2\"\nclock = \"virtual\"\nmax_buf_size = 1000\n",
        "faults = \"refuse:p=0.3+slow@3:for=50us\"\n",
    ] {
        let output = part("programs_on_a_card").env(CARD, "1").env("DOCA_EMU", card).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{card:?}: {text}{errors}");
    }
}

const EXPORT: &str = "DMA_DOCA_TEST_EXPORT";
const SIDE_DIR: &str = "DMA_DOCA_TEST_DIR";

/// Returns the engine of this side of a pair, and the path of the descriptor's file.
fn side(address: &str) -> Option<(DocaEngine, PathBuf)> {
    let (path, dir) = (std::env::var_os(EXPORT)?, std::env::var_os(SIDE_DIR)?);
    Some((open(address, Path::new(&dir)), path.into()))
}

fn told() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Runs the host: exports memory, and revokes the export when the test requests that.
#[test]
#[ignore = "a part of the other test, in a separate process"]
fn host() {
    let Some((host, path)) = side("3b:00.0") else { return };
    let window = host.allocate_window(&MemoryRequest::new(LEN).exportable(Access::all())).unwrap();
    window.write_at(0, &[7; LEN]).unwrap();
    let export = window.export(Access::READ | Access::WRITE).unwrap();
    export.descriptor().save(&path).unwrap();
    println!("exported");
    told();
    let mut bytes = vec![0; LEN];
    window.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..50].iter().all(|b| *b == 9) && bytes[50..].iter().all(|b| *b == 7));
    export.revoke(Duration::from_secs(60)).unwrap();
    println!("revoked");
    told();
}

/// Runs the DPU: copies the host's memory until it is revoked.
#[test]
#[ignore = "a part of the other test, in a separate process"]
fn dpu() {
    let Some((dpu, path)) = side("03:00.0") else { return };
    let queue = dpu.open_queue(&QueueOptions::new()).unwrap();
    let remote = dpu.import(&ExportDescriptor::load(&path).unwrap()).unwrap();
    let (_, got) = queue.copy(remote.clone(), dpu.allocate(LEN).unwrap()).unwrap().wait().unwrap();
    assert!(got.iter().all(|b| *b == 7));
    let mut new = dpu.allocate(50).unwrap();
    new.fill(9);
    queue.copy(new, remote.slice(0..50)).unwrap().wait().unwrap();
    println!("copied");
    told();
    let e = queue.copy(remote, dpu.allocate(LEN).unwrap()).unwrap().wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Revoked, "{e}");
    let (src, dst) = (dpu.allocate(64).unwrap(), dpu.allocate(64).unwrap());
    queue.copy(src, dst).unwrap().wait().unwrap();
}

/// The process of one side of a pair.
struct Side {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Side {
    fn start(name: &str, export: &Path, dir: &Path) -> Self {
        let mut command = part(name);
        command.env(EXPORT, export).env(SIDE_DIR, dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn hears(&mut self, what: &str) {
        let heard = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(what));
        assert!(heard.is_some(), "the process prints {what}");
    }

    fn tell(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap(), "go on").unwrap();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host and a DPU, one of this generation and one of DOCA 3. The DPU copies until the host revokes
/// its export.
#[test]
fn a_dpu_copies_a_hosts_memory_until_it_is_revoked() {
    let third = stand_ins::library_dir(&stand_ins::doca_emu_prefix());
    let dir = tempfile::tempdir().unwrap();
    let pairs = [(&*DIR, &*DIR), (&third, &*DIR), (&*DIR, &third)];
    for (n, (host_dir, dpu_dir)) in pairs.into_iter().enumerate() {
        let path = dir.path().join(format!("export-{n}"));
        let mut host = Side::start("host", &path, host_dir);
        host.hears("exported");
        let mut dpu = Side::start("dpu", &path, dpu_dir);
        dpu.hears("copied");
        host.tell();
        host.hears("revoked");
        dpu.tell();
        assert!(dpu.child.wait().unwrap().success());
        host.tell();
        assert!(host.child.wait().unwrap().success());
    }
}

#[test]
fn an_export_to_be_read_alone_is_made_or_refused_with_the_remedy() {
    let host = open("3b:00.0", &DIR);
    let window = host.allocate_window(&MemoryRequest::new(LEN).exportable(Access::READ)).unwrap();
    match window.export(Access::READ) {
        Ok(_) => assert_eq!(crate::GENERATION, "2.2"),
        Err(e) => {
            assert_eq!((crate::GENERATION, e.kind()), ("1.5", ErrorKind::Unsupported), "{e}");
            assert!(e.to_string().contains("not reading alone"), "{e}");
            assert!(e.hint().contains("READ and WRITE"), "{e}");
        }
    }
}

#[test]
fn the_comm_channel_is_refused_with_the_remedy() {
    let options = DocaOptions::new().with_address("3b:00.0".parse().unwrap()).with_lib_dir(&*DIR);
    let e = dma_doca::comch::Client::new(&options, "service").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::MissingSdk, "{e}");
    assert!(e.to_string().contains("1.5 to 2.2") && e.hint().contains("a later SDK"), "{e}");
}

#[test]
fn two_generations_are_not_used_in_one_process() {
    let first = engine();
    let third = stand_ins::library_dir(&stand_ins::doca_emu_prefix());
    let e = DocaEngine::open(&DocaOptions::new().with_lib_dir(third)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::MissingSdk, "{e}");
    assert!(e.to_string().contains("cannot be used together with"), "{e}");
    assert!(e.hint().contains("one of them"), "{e}");
    assert_eq!(first.info().version, engine().info().version);
}
