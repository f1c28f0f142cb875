//! Transfers that are cancelled or dropped.

use super::*;

#[test]
fn cancelled_and_dropped_transfers_leave_neither_file_nor_buffers() {
    for name in ["cpu", "sim:device_memory=8M", "standin-gpu:1"] {
        let setup = Setup::simple(name);
        let folder = folder();
        let (path, to) = (folder.path().join("file"), folder.path().join("to"));
        let content = bytes(300_000, 1);
        std::fs::write(&path, &content).expect("written");
        let file = open_file(&path, &OpenFile::new());
        let mut pieces = vec![FilePiece::new(0..300_000, window(&setup.engine, 300_000))];
        for polls in 0..40 {
            for saves in [false, true] {
                let start = |pieces| match saves {
                    false => setup.files.read(&file, pieces).expect("valid"),
                    true => setup.files.save(&to, pieces).expect("valid"),
                };
                // Cancelled.
                let mut transfer = start(pieces);
                let ended = end_within(polls, &mut transfer);
                transfer.cancel();
                match ended.unwrap_or_else(|| transfer.wait()) {
                    Ok((same, _)) => pieces = same,
                    Err(e) => {
                        let (e, same) = e.into_parts();
                        assert_eq!(e.kind(), ErrorKind::Aborted, "{e}");
                        assert!(!to.exists());
                        pieces = same.expect("no fork");
                    }
                }
                // Dropped.
                let mut transfer = start(pieces.clone());
                _ = end_within(polls, &mut transfer);
                drop(transfer);
                assert!(names(folder.path()).iter().all(|name| name == "file" || name == "to"));
                setup.settle();
                _ = std::fs::remove_file(&to);
            }
        }
        let (pieces, _) = setup.files.read(&file, pieces).expect("valid").wait().expect("read");
        assert!(download(&setup.engine, &pieces[0].window) == content);
    }
}

/// Polls a future so many times, or until it has ended, and returns its result then.
fn end_within<F: Future + Unpin>(polls: u32, future: &mut F) -> Option<F::Output> {
    (0..polls).find_map(|_| match poll(future) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    })
}

/// Polls a future once.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
