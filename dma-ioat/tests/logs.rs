//! SPDK's log lines become `tracing` events. Without a subscriber, SPDK prints them.

mod standin;

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dma_ioat::{IoatEngine, IoatOptions};
use standin::on_machine;
use test_support::log::set_log;

/// A device of another process, which the stand-in logs as an error.
const TAKEN: &str = "[[socket]]\n[[socket.function]]\npci = '00:04.0'\ntaken = true\n";
const LINE: &str = "0000:00:04.0 is not available";

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

fn open_with_log() {
    let library = standin::library_with_log();
    IoatEngine::open(&IoatOptions::new().with_library(library)).unwrap_err();
}

#[test]
fn log_lines_become_events() {
    on_machine("log_lines_become_events", TAKEN, || {
        let captured = Captured::default();
        let writer = captured.clone();
        tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
        open_with_log();
        let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
        let line = text.lines().find(|line| line.contains(LINE)).unwrap_or_else(|| panic!("no line: {text}"));
        assert!(line.contains("ERROR spdk:"), "{line}");
        assert!(line.ends_with("another process has it"), "whole, with its arguments: {line}");
    });
}

/// The events are logged within the set-up of the environment, which holds locks.
#[test]
fn a_log_subscriber_may_open_engines() {
    const DEVICE: &str = "[[socket]]\n[[socket.function]]\npci = '00:04.0'\n";
    on_machine("a_log_subscriber_may_open_engines", DEVICE, || {
        let open = || IoatEngine::open(&IoatOptions::new().with_library(standin::library_with_log()));
        let (event, events) = channel();
        let is_first = AtomicBool::new(true);
        set_log(move |_| {
            if is_first.swap(false, Ordering::Relaxed) {
                open().expect("a channel").release_idle();
                event.send(()).expect("the test waits");
            }
        });
        let opened = std::thread::spawn(open);
        // This limit is reached only if the subscriber hangs.
        events.recv_timeout(Duration::from_secs(120)).expect("the subscriber opens an engine");
        opened.join().expect("no panic").expect("a channel");
    });
}

/// Writes the lines whose output on standard error the test below checks.
#[test]
#[ignore = "run by logs_without_a_listener_are_printed"]
fn print() {
    tracing_subscriber::fmt().with_env_filter("other=trace").with_writer(io::sink).init();
    open_with_log();
}

#[test]
fn logs_without_a_listener_are_printed() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["print", "--exact", "--ignored", "--nocapture"])
        .env("SPDK_EMU", TAKEN)
        .env_remove("SPDK_EMU_CONFIG")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches(LINE).count(), 1, "{text}");
}
