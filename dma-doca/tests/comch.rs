//! The comm channel between a server and clients on the stand-in.

#[path = "support/calls.rs"]
mod calls;

use std::time::{Duration, Instant};

use dma_core::{ErrorKind, PciAddress};
use dma_doca::DocaOptions;
use dma_doca::comch::{Channel, Client, Server};

const SOON: Duration = Duration::from_secs(60);

fn options(address: &str) -> DocaOptions {
    DocaOptions::new().with_address(address.parse().unwrap()).with_library(calls::library())
}

/// Makes a card whose serial number is unique to this process, because clients in all processes find
/// servers by the serial number.
fn card(name: &str, more: &str) {
    let config = format!("serial = \"{name}-{}\"\n{more}", std::process::id());
    doca_emu::use_config(Some(&config)).unwrap();
}

fn at(address: &str) -> PciAddress {
    address.parse().unwrap()
}

fn listen(name: &str) -> Server {
    Server::listen(&options("03:00.0"), at("3b:00.0"), name).unwrap()
}

/// Makes a connection, and returns both ends. The stand-in's list of devices is per thread. So the caller
/// opens the server and the client on one thread, before another thread uses them.
fn connect(server: &Server, client: &Client) -> (Channel, Channel) {
    std::thread::scope(|scope| {
        let dpu = scope.spawn(|| server.accept(SOON).unwrap());
        let host = client.connect(SOON).unwrap();
        (dpu.join().unwrap(), host)
    })
}

/// Sends on one end while the other end receives.
fn talk(from: &Channel, to: &Channel, messages: &[Vec<u8>]) {
    std::thread::scope(|scope| {
        scope.spawn(|| messages.iter().for_each(|message| from.send(message, SOON).unwrap()));
        for message in messages {
            assert_eq!(to.recv(SOON).unwrap(), *message);
        }
    });
}

#[test]
fn messages_go_both_ways_whole_and_in_order() {
    card("talk", "");
    let server = listen("talk");
    let client = Client::new(&options("3b:00.0"), "talk").unwrap();
    let (dpu, host) = connect(&server, &client);
    let messages: Vec<_> = (0..200_usize).map(|n| vec![n as u8; 1 + n * 19 % host.max_message()]).collect();
    talk(&host, &dpu, &messages);
    talk(&dpu, &host, &messages);
    let longest = vec![vec![1; host.max_message()]];
    talk(&host, &dpu, &longest);
}

/// Messages that a server sends right after `accept` are received, even if the client has not been reported
/// as connected.
#[test]
fn the_first_words_of_a_server_are_not_lost() {
    card("first", "");
    let server = listen("first");
    let client = Client::new(&options("3b:00.0"), "first").unwrap();
    for n in 0..50_u8 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let dpu = server.accept(SOON).unwrap();
                dpu.send(&[n], SOON).unwrap();
                assert_eq!(dpu.recv(SOON).unwrap(), [n]);
            });
            let host = client.connect(SOON).unwrap();
            assert_eq!(host.recv(SOON).unwrap(), [n]);
            host.send(&[n], SOON).unwrap();
        });
    }
}

#[test]
fn a_server_has_several_clients() {
    card("several", "");
    let server = listen("several");
    let client = Client::new(&options("3b:00.0"), "several").unwrap();
    let pairs: Vec<_> = (0..3).map(|_| connect(&server, &client)).collect();
    for (n, (dpu, host)) in pairs.iter().enumerate() {
        talk(host, dpu, &[vec![n as u8; 3]]);
        talk(dpu, host, &[vec![n as u8 + 10; 3]]);
    }
}

#[test]
fn bad_messages_and_names_are_refused_with_numbers() {
    card("bad", "[comch]\nmax_msg_size = 100\nmax_name_len = 20\n");
    let server = listen("bad");
    let client = Client::new(&options("3b:00.0"), "bad").unwrap();
    let (_dpu, host) = connect(&server, &client);
    assert_eq!((host.max_message(), server.max_message()), (100, 100));
    let e = host.send(&[0; 101], SOON).unwrap_err();
    assert_eq!((e.kind(), e.requested(), e.limit()), (ErrorKind::OutOfRange, Some(101), Some(100)));
    assert_eq!(host.send(&[], SOON).unwrap_err().kind(), ErrorKind::InvalidArgument);
    host.send(&[0; 100], SOON).unwrap();
    let e = Client::new(&options("3b:00.0"), &"x".repeat(30)).unwrap_err();
    assert_eq!((e.kind(), e.requested()), (ErrorKind::OutOfRange, Some(30)), "{e}");
    // With its NUL, a name of 20 bytes is one byte too long.
    let e = Client::new(&options("3b:00.0"), &"x".repeat(20)).unwrap_err();
    assert_eq!((e.kind(), e.requested(), e.limit()), (ErrorKind::OutOfRange, Some(20), Some(19)), "{e}");
    Client::new(&options("3b:00.0"), &"x".repeat(19)).unwrap();
    assert_eq!(Client::new(&options("3b:00.0"), "").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let e = Client::new(&options("3b:00.0"), "a\0b").and_then(|c| c.connect(SOON)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let e = Server::listen(&options("03:00.0"), at("99:00.0"), "x").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    assert!(e.hint().contains("0000:3b:00.0"), "{e}");
    let e = Server::listen(&options("3b:00.0"), at("3b:00.0"), "x").unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Unsupported), "{e}");
    let e = Server::listen(&options("03:00.0"), at("3b:00.0"), "bad").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InUse, "{e}");
    assert!(e.hint().contains("another name"), "{e}");
}

#[test]
fn waiting_has_a_deadline() {
    card("deadline", "");
    let soon = Duration::from_millis(30);
    let client = Client::new(&options("3b:00.0"), "deadline").unwrap();
    let begin = Instant::now();
    let e = client.connect(soon).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}");
    assert!(e.hint().contains("DPU"));
    let server = listen("deadline");
    assert_eq!(server.accept(soon).unwrap_err().kind(), ErrorKind::TimedOut);
    let (dpu, _host) = connect(&server, &client);
    assert_eq!(dpu.recv(soon).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(begin.elapsed() < SOON);
}

/// A client that times out before a slow server has answered leaves no second connection, which the server
/// would accept.
#[test]
fn a_call_goes_on_with_the_connection_of_a_call_that_timed_out() {
    card("slow", "");
    let server = listen("slow");
    let client = Client::new(&options("3b:00.0"), "slow").unwrap();
    let (mut dpu, mut host) = (None, None);
    for _ in 0..1000 {
        host = host.or_else(|| client.connect(Duration::ZERO).ok());
        dpu = dpu.or_else(|| server.accept(Duration::ZERO).ok());
        if let (Some(dpu), Some(host)) = (&dpu, &host) {
            talk(host, dpu, &[vec![1]]);
            talk(dpu, host, &[vec![2]]);
            assert_eq!(
                server.accept(Duration::ZERO).unwrap_err().kind(),
                ErrorKind::TimedOut,
                "one connection"
            );
            return;
        }
    }
    panic!("no connection after 1000 short calls");
}

#[test]
fn a_peer_that_goes_is_an_error_after_its_last_message() {
    card("gone", "");
    let server = listen("gone");
    let client = Client::new(&options("3b:00.0"), "gone").unwrap();
    let (dpu, host) = connect(&server, &client);
    host.send(b"last words", SOON).unwrap();
    drop(host);
    assert_eq!(dpu.recv(SOON).unwrap(), b"last words");
    assert_eq!(dpu.recv(SOON).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(dpu.send(b"hello?", SOON).unwrap_err().kind(), ErrorKind::Closed);
    // The server still accepts connections, and the client connects again.
    let (dpu, host) = connect(&server, &client);
    talk(&dpu, &host, &[vec![1]]);
    drop(dpu);
    let e = host.recv(SOON).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
    assert_eq!(host.send(b"x", SOON).unwrap_err().kind(), ErrorKind::Closed);
}

/// Connections that closed before `accept` are not accepted.
#[test]
fn a_client_that_has_gone_is_not_accepted() {
    card("went", "");
    let server = listen("went");
    let client = Client::new(&options("3b:00.0"), "went").unwrap();
    // The server must progress so that the client can connect.
    let (first, dpu) = std::thread::scope(|scope| {
        let dpu = scope.spawn(|| server.accept(SOON).unwrap());
        (client.connect(SOON).unwrap(), dpu.join().unwrap())
    });
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while dpu.recv(Duration::from_millis(5)).is_err_and(|e| e.kind() == ErrorKind::TimedOut) {}
            });
            drop(client.connect(SOON).unwrap());
            first.send(b"gone", SOON).unwrap();
        });
    }
    assert_eq!(server.accept(Duration::from_millis(50)).unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn more_messages_than_there_is_room_for_wait() {
    card("crowd", "");
    let server = listen("crowd");
    let client = Client::new(&options("3b:00.0"), "crowd").unwrap();
    let (dpu, host) = connect(&server, &client);
    const SENDERS: usize = 50;
    const EACH: usize = 20;
    let mut heard = vec![0; SENDERS];
    std::thread::scope(|scope| {
        for n in 0..SENDERS {
            let host = &host;
            scope.spawn(move || {
                for m in 0..EACH {
                    let mut message = vec![m as u8; host.max_message()];
                    message[0] = n as u8;
                    host.send(&message, SOON).unwrap();
                }
            });
        }
        // Wait until all senders are probably sending.
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..SENDERS * EACH {
            let message = dpu.recv(SOON).unwrap();
            let sender = usize::from(message[0]);
            assert!(
                message[1..].iter().all(|byte| *byte == heard[sender]),
                "each message arrives once, and in order"
            );
            heard[sender] += 1;
        }
    });
    assert_eq!(heard, [EACH as u8; SENDERS]);
}

/// If the peer disconnects, messages that are being sent fail.
#[test]
fn a_message_that_nobody_took_is_an_error() {
    card("undelivered", "");
    let server = listen("undelivered");
    let client = Client::new(&options("3b:00.0"), "undelivered").unwrap();
    let (dpu, host) = connect(&server, &client);
    let message = vec![1; host.max_message()];
    // The peer does not receive. Messages are sent until no room is left.
    let full = std::iter::repeat_with(|| host.send(&message, Duration::from_millis(50))).find(Result::is_err);
    assert_eq!(full.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    std::thread::scope(|scope| {
        // On a busy machine, there may be room for some more messages.
        let waits = scope.spawn(|| std::iter::repeat_with(|| host.send(&message, SOON)).find(Result::is_err));
        std::thread::sleep(Duration::from_millis(50));
        drop(dpu);
        assert_eq!(waits.join().unwrap().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
}
