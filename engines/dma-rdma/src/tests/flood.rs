//! The exporter's service while many peers connect that say nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use dma_core::DmaEngineExt;

use super::exchange::{Exporter, pass_on};
use super::remote::SOON;
use crate::import::ask;
use crate::service::{MAX_SILENT, OWN_TIME};
use crate::wire::{REPLY, Reply};

/// Connects strangers: as many as are accepted, and some that wait.
fn strangers(exporter: &Exporter) -> Vec<TcpStream> {
    let mut strangers: Vec<_> = (1..MAX_SILENT).map(|_| exporter.connect().0).collect();
    let wait = (0..MAX_SILENT).map(|_| TcpStream::connect(exporter.service).unwrap());
    strangers.extend(wait);
    strangers
}

#[test]
fn an_exchange_goes_on_while_strangers_connect() {
    let exporter = Exporter::open();
    loop {
        let begun = Instant::now();
        let (mut peer, challenge) = exporter.connect();
        let mut strangers = strangers(&exporter);
        // Time to accept those that wait.
        let last = strangers.last_mut().unwrap();
        last.set_read_timeout(Some(OWN_TIME / 5)).unwrap();
        let accepted = last.read(&mut [0]);
        let sent = peer.write_all(&exporter.valid(&challenge));
        let mut reply = [0; REPLY];
        let answered = sent.and_then(|()| peer.read_exact(&mut reply));
        drop(strangers);
        // A peer that is slower may have to call again.
        if begun.elapsed() < OWN_TIME {
            answered.expect("it is served");
            accepted.expect_err("strangers beyond the most wait");
            let reply = Reply::decode(&reply, &exporter.secret, &challenge, &exporter.request());
            assert!(matches!(reply, Ok(Reply::Granted(_, None))), "{reply:?}");
            return;
        }
    }
}

#[test]
fn an_importer_is_served_behind_strangers() {
    let exporter = Exporter::open();
    let _first = exporter.connect();
    let _others = strangers(&exporter);
    exporter.engine.import(exporter.export.descriptor()).expect("it is served in its turn");
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
