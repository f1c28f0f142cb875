//! Tests the exporter's service while many peers connect without sending a request.

use std::io::{ErrorKind as IoKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dma_core::{DmaEngineExt, ErrorKind};
use dma_handshake::{Answering, MAX_PENDING, PENDING_TIMEOUT};
use test_support::descriptor_limit::raise_to;

use super::exchange::{Exporter, pass_on};
use super::remote::SOON;
use crate::import::ask;
use crate::wire::{PROTOCOL, Reply};

/// A peer is served if fewer connections than the table's size arrive between its connection and its request.
/// Otherwise it gets the answer that the exporter is busy.
#[test]
fn connections_of_one_host_close_the_oldest_of_them() {
    raise_to(1024);
    let exporter = Exporter::open();
    for (strangers, is_served) in [(MAX_PENDING - 2, true), (MAX_PENDING - 1, false)] {
        let attempt = || {
            let mut peer = exporter.connect();
            let _strangers: Vec<_> = (0..strangers).map(|_| exporter.connect()).collect();
            // The exporter accepts this connection after all others, so they are in its table.
            let last = exporter.request(&mut exporter.connect());
            (last, exporter.request(&mut peer))
        };
        // If an attempt takes too long, the exporter closes the connections because of their age.
        let (last, reply) = std::iter::repeat_with(|| (Instant::now(), attempt()))
            .take(20)
            .find_map(|(begun, replies)| (begun.elapsed() < PENDING_TIMEOUT).then_some(replies))
            .expect("an attempt within the time limit");
        assert!(matches!(last, Ok(Reply::Granted(_, None))), "{last:?}");
        match is_served {
            true => assert!(matches!(reply, Ok(Reply::Granted(_, None))), "{reply:?}"),
            false => assert_eq!(reply, Err(IoKind::ResourceBusy)),
        }
    }
}

/// Keeps `count` silent connections open until `over`. Reopens connections that were closed, and counts all
/// connections in `opened`.
fn hold(service: SocketAddr, count: usize, opened: &AtomicUsize, over: &AtomicBool) {
    let connect = || {
        let stream = TcpStream::connect(service).unwrap();
        stream.set_nonblocking(true).unwrap();
        opened.fetch_add(1, Ordering::Relaxed);
        stream
    };
    let mut held: Vec<_> = (0..count).map(|_| connect()).collect();
    while !over.load(Ordering::Relaxed) {
        for stream in &mut held {
            let is_open = matches!(stream.read(&mut [0; 64]), Err(e) if e.kind() == IoKind::WouldBlock);
            if !is_open {
                *stream = connect();
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn imports_succeed_while_a_stranger_holds_connections() {
    const HELD: usize = MAX_PENDING + 32;
    raise_to(1024);
    let exporter = Exporter::open();
    let (opened, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| hold(exporter.service, HELD, &opened, &over));
        while opened.load(Ordering::Relaxed) < HELD {
            std::thread::sleep(Duration::from_millis(1));
        }
        let imports: Vec<_> = (0..6)
            .map(|_| {
                let begun = std::time::Instant::now();
                let import = exporter.engine.import(exporter.export.descriptor()).map(drop);
                (begun.elapsed(), import)
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        for (took, import) in imports {
            println!("the import took {took:?}");
            import.expect("it is served");
        }
    });
}

#[test]
fn an_importer_that_is_turned_away_to_the_end_is_told_that_the_exporter_is_busy() {
    let exporter = Exporter::open();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            Answering::new(stream).refuse_as_busy(&PROTOCOL);
        }
    });
    // On a busy machine, the first answer can come after the time has expired. Then the importer asks with
    // more time.
    let error = (0..7)
        .map(|doubled| ask(busy, &exporter.secret, None, Duration::from_secs(1 << doubled)).unwrap_err())
        .find(|error| error.kind() != ErrorKind::DeviceFault)
        .expect("an answer within the longest time, 64 s");
    assert_eq!(error.kind(), ErrorKind::OutOfResources, "{error}");
    assert!(error.message().contains("busy") && error.is_by_peer(), "{error}");
}

#[test]
fn an_importer_that_is_hung_up_on_calls_again() {
    let exporter = Exporter::open();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (between, service) = (listener.local_addr().unwrap(), exporter.service);
    let passing = std::thread::spawn(move || {
        drop(listener.accept());
        pass_on(listener.accept().unwrap().0, service);
    });
    ask(between, &exporter.secret, None, SOON).expect("it is served");
    passing.join().unwrap();
}
