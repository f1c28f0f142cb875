//! The SDK's log lines become `tracing` events.

#[path = "support/calls.rs"]
mod calls;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dma_doca::comch::{Client, Server};
use dma_doca::{DocaEngine, DocaOptions};

const SOON: Duration = Duration::from_secs(120);

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn log_lines_become_events() {
    let captured = Captured::default();
    let writer = captured.clone();
    tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
    let config = format!("serial = \"logs-{}\"\n[comch]\nmax_clients = 1\n", std::process::id());
    doca_emu::use_config(Some(&config)).unwrap();
    let options = |address: &str| {
        DocaOptions::new().with_library(calls::library()).with_address(address.parse().unwrap())
    };
    let _engine = DocaEngine::open(&options("03:00.0")).unwrap();
    // The stand-in logs that a client exceeds the maximum number.
    let server = Server::listen(&options("03:00.0"), "3b:00.0".parse().unwrap(), "logs").unwrap();
    let logged = || String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
    let refused = || logged().contains("a client was refused");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let client = Client::new(&options("3b:00.0"), "logs").unwrap();
        scope.spawn(|| {
            let _one = server.accept(SOON).unwrap();
            // The server refuses clients only while it accepts.
            while !refused() && begun.elapsed() < SOON {
                server.accept(Duration::from_millis(10)).unwrap_err();
            }
        });
        let _one = client.connect(SOON).unwrap();
        // A connection that ended before the server saw it was not refused.
        while !refused() && begun.elapsed() < SOON {
            client.connect(Duration::from_millis(50)).unwrap_err();
        }
    });
    let text = logged();
    assert!(refused() && text.contains(" WARN doca:"), "{text}");
}
