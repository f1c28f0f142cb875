//! A file system that becomes full, in a process of its own.

use super::*;

const FULL_DISK: &str = "DMA_TEST_FULL_DISK";
/// Size of the file system that becomes full.
const DISK_LEN: u64 = 256 << 10;

/// Runs as the child process of the test below, with a small file system.
#[test]
#[ignore = "the next test runs this in a separate process"]
fn full_disk_child() {
    let Some(disk) = std::env::var_os(FULL_DISK) else { return };
    let disk = Path::new(&disk);
    let to = disk.join("to");
    for name in ["cpu", "sim:device_memory=8M", "standin-gpu:1"] {
        for method in [Method::IoUring, Method::Threads] {
            let Some(setup) = Setup::new(name, (16 << 10, 3), 64, Some(method)) else { continue };
            std::fs::write(&to, "before").expect("written");
            let whole = window(&setup.engine, 600_000);
            let is_unchanged = || {
                setup.settle();
                assert_eq!(names(disk), ["to"], "{name}");
                assert_eq!(std::fs::read(&to).expect("readable"), b"before", "{name}");
            };
            // Without and with a hole.
            for gap in [0, 5000] {
                let pieces = vec![
                    FilePiece::new(0..1, whole.slice(..1)),
                    FilePiece::new(1 + gap..600_000 + gap, whole.slice(1..)),
                ];
                let mut save = setup.files.save(&to, pieces).expect("valid");
                assert!(save.wait_timeout(LONG));
                // The failure may be reported before the first bytes.
                assert!(save.moved() < DISK_LEN, "{name}: {} bytes", save.moved());
                let (e, pieces) = failed(save.wait().expect_err("no space"));
                assert_eq!((e.kind(), pieces.len()), (ErrorKind::OutOfResources, 2), "{name}: {e}");
                let operation = e.operation();
                assert!(
                    operation.contains("/to from device memory") && operation.contains("bytes "),
                    "{operation}"
                );
                is_unchanged();
            }
            // All space is free again, as soon as the kernel has released the last operation's file.
            let begin = Instant::now();
            loop {
                let pieces = vec![FilePiece::new(0..100_000, whole.slice(..100_000))];
                match setup.files.save(&to, pieces).expect("valid").wait() {
                    Ok(_) => break,
                    Err(e) => assert!(begin.elapsed() < LONG, "{name}: {}", e.error()),
                }
            }
            assert_eq!(std::fs::read(&to).expect("readable").len(), 100_000);
            println!("full: {name} {method:?}");
        }
    }
}

#[test]
fn a_disk_that_becomes_full_leaves_the_old_file() {
    let folder = folder();
    let mount = format!("mount -t tmpfs -o size={DISK_LEN} none \"$0\" && exec \"$@\"");
    let inside = |program: &Path| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &mount]).arg(folder.path()).arg(program);
        command
    };
    let probe = inside("true".as_ref()).stderr(std::process::Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this user may not mount a file system");
        return;
    }
    let mut child = inside(&std::env::current_exe().expect("this program"));
    child.args(["--exact", "full_disk::full_disk_child", "--ignored", "--nocapture", "--test-threads=1"]);
    let output = child.env(FULL_DISK, folder.path()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("full: standin-gpu:1 Threads"), "{text}{error}");
}
