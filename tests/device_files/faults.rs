//! Devices that fail, stall or are lost during a transfer.

use super::*;

#[test]
fn device_faults_and_stalls_leave_no_file() {
    for (faults, kind) in [
        ("fail@5", ErrorKind::DeviceFault),
        ("reset@5", ErrorKind::DeviceFault),
        ("gone@5", ErrorKind::DeviceLost),
        ("dead@5", ErrorKind::DeviceLost),
        ("stick@5", ErrorKind::TimedOut),
    ] {
        let engine = open(&format!("sim:device_memory=8M,faults={faults}"));
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(8192, 2)).expect("a pool");
        // Only a device that never answers is waited for in vain, so that the others have all the time.
        let options = match kind {
            ErrorKind::TimedOut => QueueOptions::new()
                .with_stall_timeout(Duration::from_millis(50))
                .with_drop_timeout(Duration::from_millis(50)),
            _ => QueueOptions::new(),
        };
        let queue =
            engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options)).expect("a queue");
        let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new()).expect("it opens");
        let folder = folder();
        let to = folder.path().join("to");
        let pieces = vec![FilePiece::new(0..100_000, window(&engine, 100_000))];
        let e = files.save(&to, pieces).expect("valid").wait().expect_err(faults);
        let (e, pieces) = failed(e);
        assert!(e.kind() == kind || (faults == "reset@5" && e.kind() == ErrorKind::Aborted), "{faults}: {e}");
        assert!(e.operation().contains("/to from device memory") && e.operation().contains("bytes "), "{e}");
        assert_eq!(e.backend(), "sim", "{e}");
        assert!(names(folder.path()).is_empty(), "{faults}");
        if kind == ErrorKind::DeviceFault {
            files.save(&to, pieces).expect("valid").wait().expect("the device works again");
            assert_eq!(std::fs::read(&to).expect("readable"), vec![0; 100_000]);
        }
    }
}

/// A failure that ends a GPU's context leaves neither a file nor a wait without an end. The stall timeout is
/// longer than any test.
#[test]
fn a_lost_gpu_leaves_no_file() {
    let engine = open("standin-gpu:3");
    let options = QueueOptions::new().with_stall_timeout(Duration::from_secs(100 * 3600));
    let queue = engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options)).expect("a queue");
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(8192, 2)).expect("a pool");
    let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new()).expect("it opens");
    let folder = folder();
    let to = folder.path().join("to");
    std::fs::write(&to, "before").expect("written");
    let pieces = vec![FilePiece::new(0..100_000, window(&engine, 100_000))];
    let (e, _) = failed(files.save(&to, pieces).expect("valid").wait().expect_err("the device fails"));
    assert_eq!(e.kind(), ErrorKind::DeviceLost, "{e}");
    assert!(e.operation().contains("/to from device memory") && e.backend() == "cuda", "{e}");
    assert_eq!(std::fs::read(&to).expect("readable"), b"before");
    assert_eq!(names(folder.path()), ["to"]);
    assert!(engine.allocate(64).is_err_and(|e| e.kind() == ErrorKind::DeviceLost));
}
