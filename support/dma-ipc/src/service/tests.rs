use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use dma_core::Access;
use dma_handshake::MAX_PENDING;
use rustix::net::connect;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::super::blob::Blob;
use super::super::wire::{REPLY_LEN, encode_hello};
use super::super::{Export, Import, Pages, SharedMemory};
use super::*;

fn exported() -> (Export, Blob) {
    let memory = SharedMemory::allocate(100, Pages::Normal).unwrap();
    let export = Export::new(&memory, 0..100, Access::READ).unwrap();
    let blob = Blob::parse(export.blob()).unwrap();
    (export, blob)
}

/// Connects to the exporter of `blob`, as a peer that may violate the protocol.
fn stranger(blob: &Blob) -> OwnedFd {
    let socket = new_socket(SocketFlags::empty()).unwrap();
    connect(&socket, &address(&blob.socket).unwrap()).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
    socket
}

fn say(socket: &OwnedFd, message: &[u8]) {
    rustix::net::send(socket, message, SendFlags::NOSIGNAL).unwrap();
}

/// Receives an answer, and blocks until it arrives. Returns `None` if the connection was closed.
fn hear(socket: &OwnedFd) -> Option<Reply> {
    let mut reply = [0; REPLY_LEN];
    // On a socket with a timeout, the call is interrupted when the process is stopped and continued.
    match rustix::io::retry_on_intr(|| recv(socket, &mut reply, RecvFlags::empty())) {
        Ok((0, _)) | Err(Errno::CONNRESET) => None,
        other => Some(Reply::parse(&reply[..other.unwrap().0]).expect("an answer")),
    }
}

/// All tests of this process share its service. A test that fills the table of pending connections locks
/// this for writing, because the service then closes connections of other tests. Strangers who expect an
/// answer lock it for reading.
static TABLE: RwLock<()> = RwLock::new(());

fn without_flood() -> RwLockReadGuard<'static, ()> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn strangers_who_say_nothing_do_not_stall_others() {
    let _table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    test_support::descriptor_limit::raise_to(1024);
    let (export, blob) = exported();
    let strangers: Vec<_> = (0..3 * MAX_PENDING).map(|_| stranger(&blob)).collect();
    Import::open(export.blob()).unwrap().check().unwrap();
    // The first connections were closed to make room for later connections. Half of the last connections are
    // closed when their time expires.
    for closed in [&strangers[0], &strangers[3 * MAX_PENDING - 1 - MAX_PENDING / 2]] {
        assert_eq!(hear(closed), Some(Reply::Busy));
        assert_eq!(hear(closed), None);
    }
    Import::open(export.blob()).unwrap().check().unwrap();
}

/// Makes a copy of `blob` whose exporter gives these answers, one to each caller, and then begins again with
/// the first. It never answers the callers whose answer is `None`. The function that is returned ends the
/// exporter, and returns the number of callers.
fn exporter_that_answers(blob: Blob, answers: Vec<Option<Reply>>) -> (Blob, impl FnOnce() -> usize) {
    let socket = random().unwrap();
    let listener = listen_on(&socket).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        let (mut callers, mut unanswered) = (0, Vec::new());
        loop {
            wait_for_caller(&listener);
            let caller = accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
            if over.load(Ordering::Relaxed) {
                return callers;
            }
            match answers[callers % answers.len()] {
                // A caller may have given up already.
                Some(answer) => drop(send(&caller, answer, &[])),
                None => unanswered.push(caller),
            }
            callers += 1;
        }
    });
    let blob = Blob { socket, ..blob };
    let end = move || {
        is_over.store(true, Ordering::Relaxed);
        // The last caller wakes the thread.
        drop(stranger(&Blob { socket, ..blob }));
        thread.join().unwrap()
    };
    (blob, end)
}

#[test]
fn a_busy_exporter_is_asked_again() {
    let (export, blob) = exported();
    let (busy, exporter) =
        exporter_that_answers(blob, vec![Some(Reply::Busy), Some(Reply::Busy), Some(Reply::Unknown)]);
    let error = Import::open_within(&busy.encode(), Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, RemoteError::UnknownExport { .. }), "{error}");
    assert_eq!(exporter(), 3);
    drop(export);
}

#[test]
fn an_exporter_that_stays_busy_is_an_error_that_says_so() {
    // The second exporter does not answer when it is asked again. Its first answer is remembered.
    for answers in [vec![Some(Reply::Busy)], vec![Some(Reply::Busy), None]] {
        let (export, blob) = exported();
        let (busy, exporter) = exporter_that_answers(blob, answers);
        // On a busy machine, the first answer can come after the time has expired. Then the import is
        // repeated with more time.
        let error = (0..11)
            .map(|doubled| {
                Import::open_within(&busy.encode(), Duration::from_millis(100 << doubled)).unwrap_err()
            })
            .find(|error| !matches!(error, RemoteError::Timeout { .. }))
            .expect("an answer within the longest time, 102 s");
        assert!(matches!(error, RemoteError::Busy { .. }), "{error}");
        assert!(exporter() > 0, "the exporter received no request");
        drop(export);
    }
}

fn wait_for_caller(listener: &OwnedFd) {
    let mut files = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut files, None)).unwrap();
}

#[test]
fn nonsense_is_answered_and_nothing_more() {
    let _table = without_flood();
    let (export, blob) = exported();
    let longer = [&encode_hello(blob.token)[..], &[0]].concat();
    for nonsense in [&b"GET / HTTP/1.1"[..], &[0; HELLO_LEN], &[0xff; 60_000], &longer[..]] {
        let stranger = stranger(&blob);
        say(&stranger, nonsense);
        assert_eq!(hear(&stranger), Some(Reply::BadHello));
        assert_eq!(hear(&stranger), None);
    }
    let guesser = stranger(&blob);
    say(&guesser, &encode_hello(Token([0; 16])));
    assert_eq!(hear(&guesser), Some(Reply::Unknown));
    Import::open(export.blob()).unwrap().check().unwrap();
}

#[test]
fn descriptors_that_a_stranger_sends_are_not_kept() {
    let _table = without_flood();
    let (export, blob) = exported();
    let sender = stranger(&blob);
    let (file, _) = control_page().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    let hello = encode_hello(blob.token);
    sendmsg(&sender, &[IoSlice::new(&hello)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    assert!(matches!(hear(&sender), Some(Reply::Granted(_))));
    let name = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let sent = name(rustix::fs::fstat(&file).unwrap());
    let kept = std::fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        rustix::fs::stat(path).is_ok_and(|stat| name(stat) == sent)
    });
    assert_eq!(kept.count(), 1);
    drop(export);
}

#[test]
fn an_importer_that_goes_on_talking_changes_nothing() {
    let _table = without_flood();
    let (export, blob) = exported();
    let talker = stranger(&blob);
    say(&talker, &encode_hello(blob.token));
    assert!(matches!(hear(&talker), Some(Reply::Granted(_))));
    for _ in 0..3 {
        say(&talker, b"and another thing");
    }
    Import::open(export.blob()).unwrap().check().unwrap();
    export.revoke(Duration::from_secs(60)).unwrap();
    assert_eq!(hear(&talker), None);
}

#[test]
fn an_importer_that_spoils_its_lease_word_makes_revoke_time_out() {
    let (export, blob) = exported();
    let import = Import::open(export.blob()).unwrap();
    let service = Service::get().unwrap();
    let link = {
        let Exports { by_token, importers } = &lock(&service.shared.state).exports;
        Arc::clone(&importers[&by_token[&blob.token].importers[0]].link)
    };
    link.control.word().store(u32::MAX, Ordering::Relaxed);
    let error = export.revoke(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, RemoteError::StillInUse { .. }), "{error}");
    drop(import);
    export.revoke(Duration::from_secs(60)).unwrap();
}

#[test]
fn only_the_same_user_and_root_share() {
    assert!(may_share(1000, 1000) && may_share(0, 1000));
    assert!(!may_share(1001, 1000) && !may_share(1000, 0));
}
