//! Pieces that are refused, and errors of files.

use super::*;

#[test]
fn wrong_pieces_are_refused_before_anything_is_read_or_written() {
    let (setup, other) = (Setup::simple("sim:device_memory=8M"), Setup::simple("sim:device_memory=8M"));
    let folder = folder();
    let (path, to) = (folder.path().join("file"), folder.path().join("to"));
    std::fs::write(&path, bytes(10_000, 0)).expect("written");
    let file = OpenFile::new().with_write(true).open(&path).expect("it opens");
    let on_device = window(&setup.engine, 20_000);
    let read_only = setup
        .engine
        .register_window(
            HostMemory::from_owner(vec![1; 100]),
            &MemoryRequest::new(0).with_access(Access::READ),
        )
        .expect("registered");
    let piece = |range, window: &Window| FilePiece::new(range, window.clone());
    let good = piece(0..10, &on_device.slice(..10));
    let backwards = std::ops::Range { start: 9, end: 4 };
    let both = [
        (piece(0..100, &on_device.slice(..99)), ErrorKind::LengthMismatch, Some((100, 99))),
        (piece(0..100, &on_device.slice(..101)), ErrorKind::LengthMismatch, Some((100, 101))),
        (piece(backwards, &on_device.slice(..5)), ErrorKind::InvalidArgument, None),
        (
            piece(u64::MAX - 5..u64::MAX, &on_device.slice(..5)),
            ErrorKind::OutOfRange,
            Some((u64::MAX, i64::MAX as u64)),
        ),
        (piece(20..30, &window(&other.engine, 10)), ErrorKind::WrongEngine, None),
    ];
    let reads = [
        (piece(9_990..10_001, &on_device.slice(100..111)), ErrorKind::OutOfRange, Some((10_001, 10_000))),
        (piece(20..30, &on_device.slice(9..19)), ErrorKind::Overlap, None),
        (piece(20..120, &read_only), ErrorKind::AccessDenied, None),
    ];
    let writes = [(piece(9..19, &on_device.slice(100..110)), ErrorKind::Overlap, None)];
    type Case = (FilePiece, ErrorKind, Option<(u64, u64)>);
    let check =
        |what: &str, cases: &[Case], operation: &dyn Fn(Vec<FilePiece>) -> FileError<Vec<FilePiece>>| {
            for (bad, kind, numbers) in cases {
                let (e, pieces) = failed(operation(vec![good.clone(), bad.clone()]));
                assert_eq!((e.kind(), pieces.len()), (*kind, 2), "{what}: {e}");
                assert_eq!(e.requested().zip(e.limit()), *numbers, "{what}: {e}");
                assert!(e.operation().contains(what), "{what}: {e}");
            }
        };
    let read = |pieces| setup.files.read(&file, pieces).expect_err("refused");
    let write = |pieces| setup.files.write(&file, pieces).expect_err("refused");
    let save = |pieces| setup.files.save(&to, pieces).expect_err("refused");
    check("file", &both, &read);
    check("file", &reads, &read);
    check("file", &both, &write);
    check("file", &writes, &write);
    check("to", &both, &save);
    check("to", &writes, &save);
    assert_eq!(names(folder.path()), ["file"]);
    assert_eq!(std::fs::read(&path).expect("readable"), bytes(10_000, 0));

    // Zero pieces, and empty ones.
    assert_eq!(setup.files.read(&file, vec![]).expect("valid").wait().expect("read").1, 0);
    let empty = vec![piece(5..5, &on_device.slice(..0)), piece(90_000..90_000, &on_device.slice(..0))];
    let (empty, read) = setup.files.read(&file, empty).expect("valid").wait().expect("read");
    assert_eq!((empty.len(), read), (2, 0));
    setup.files.save(&to, empty).expect("valid").wait().expect("saved");
    assert_eq!(std::fs::read(&to).expect("readable"), b"");

    // Files without ranges, and files that ignore them.
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let pipe = DmaFile::from(std::fs::File::from(pipe));
    let (e, _) = failed(setup.files.read(&pipe, vec![good.clone()]).expect_err("a pipe"));
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let appended = std::fs::OpenOptions::new().append(true).open(&path).expect("it opens");
    let (e, _) =
        failed(setup.files.write(&DmaFile::from(appended), vec![good.clone()]).expect_err("appends"));
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let (e, _) = failed(setup.files.save("/dev/null", vec![good.clone()]).expect_err("a device"));
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let (e, _) = failed(setup.files.save(folder.path().join("no/file"), vec![good]).expect_err("no folder"));
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");

    // Queue and pool of different engines.
    let queue = other.engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let mixed = DeviceFiles::new(&queue, &setup.pool, &FileQueueOptions::new()).expect("it opens");
    let pieces = vec![piece(0..10, &on_device.slice(..10))];
    let (e, _) = failed(mixed.read(&file, pieces).expect("valid").wait().expect_err("two engines"));
    assert_eq!(e.kind(), ErrorKind::WrongEngine, "{e}");
}

#[test]
fn errors_of_the_file_name_its_bytes() {
    for method in [Method::IoUring, Method::Threads] {
        let Some(setup) = Setup::new("standin-gpu:0", (8192, 3), 64, Some(method)) else { continue };
        let on_device = window(&setup.engine, 100_000);
        let folder = folder();
        let path = folder.path().join("file");
        // The file becomes shorter between the check and the reads.
        std::fs::write(&path, bytes(100_000, 0)).expect("written");
        let file = OpenFile::new().with_write(true).open(&path).expect("it opens");
        let pieces = vec![FilePiece::new(0..100_000, on_device.clone())];
        // Nothing is read while the test has all buffers.
        let all: Vec<_> = (0..3).map(|_| setup.pool.try_get(8192).expect("a buffer")).collect();
        let read = setup.files.read(&file, pieces).expect("valid");
        std::fs::File::options().write(true).open(&path).expect("it opens").set_len(50_001).expect("shorter");
        drop(all);
        let (e, pieces) = failed(read.wait().expect_err("too short"));
        assert_eq!((e.kind(), pieces.len()), (ErrorKind::OutOfRange, 1), "{e}");
        // The block with the new end of the file, or one of the two behind it, which may end first.
        let (block, says) = match e.limit() {
            Some(50_001) => ("bytes 49152 to 57344 of /", "ended at byte 50001"),
            Some(57_344) => ("bytes 57344 to 65536 of /", "ended at or before byte 57344"),
            Some(65_536) => ("bytes 65536 to 73728 of /", "ended at or before byte 65536"),
            other => panic!("{other:?}: {e}"),
        };
        assert!(e.operation().contains(block) && e.operation().contains("/file into"), "{e}");
        assert!(e.message().contains(says), "{e}");
        setup.settle();
        // A file that was opened for reading only, and a full disk.
        let e = setup.files.write(&DmaFile::open(&path).expect("it opens"), pieces).expect("valid").wait();
        let (e, pieces) = failed(e.expect_err("read-only"));
        assert!(e.kind() == ErrorKind::Os && e.operation().starts_with("write bytes "), "{e}");
        let full = OpenFile::new().with_write(true).open("/dev/full").expect("Linux has it");
        let (e, _) = failed(setup.files.write(&full, pieces).expect("valid").wait().expect_err("full"));
        assert_eq!(e.kind(), ErrorKind::OutOfResources, "{e}");
        assert!(e.operation().contains("of /dev/full from device memory"), "{e}");
        setup.settle();
    }
}
