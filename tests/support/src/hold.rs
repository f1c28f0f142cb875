//! Holds a program under test at points that it names, with `hold.rs` of `apps/shared` as the program's side.
//!
//! The program's standard input is a socket, and `DMA_TEST_HOLD` has the points to hold at, separated by
//! commas. The program writes the name of a point as a line. The test answers by a line, which may be empty,
//! or replace one of the program's timeouts: `NAME=SECONDS`. Only debug builds of a program have hold points.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// The test's end. When it is dropped, the program goes on, and does not hold any more.
#[derive(Debug)]
pub struct Hold(BufReader<UnixStream>);

impl Hold {
    /// Makes the program of `command` hold whenever it reaches one of `points`. Drop the command when it
    /// runs: otherwise [`wait`](Self::wait) hangs if the program ends early.
    pub fn at(command: &mut Command, points: &str) -> Self {
        let (test, program) = UnixStream::pair().expect("a pair of sockets");
        command.stdin(OwnedFd::from(program)).env("DMA_TEST_HOLD", points);
        Self(BufReader::new(test))
    }

    /// Waits until the program holds at `point`.
    pub fn wait(&mut self, point: &str) {
        assert!(self.reaches(point), "the program ends before {point}");
    }

    /// Waits until the program holds at `point`. Returns false if it ends instead.
    pub fn reaches(&mut self, point: &str) -> bool {
        let reached = self.next();
        assert!(reached.is_empty() || reached == point, "{reached} instead of {point}");
        !reached.is_empty()
    }

    /// Lets the program go on at other points until it holds at `point`.
    pub fn until(&mut self, point: &str) {
        loop {
            let reached = self.next();
            assert!(!reached.is_empty(), "the program ends before {point}");
            if reached == point {
                return;
            }
            self.answer("");
        }
    }

    /// Waits until the program holds, and returns the point; an empty text if the program ends.
    fn next(&mut self) -> String {
        let mut reached = String::new();
        self.0.read_line(&mut reached).expect("read");
        reached.trim_end().to_owned()
    }

    /// Lets the program go on until it reaches a point again, with another timeout unless `answer` is empty.
    pub fn answer(&mut self, answer: &str) {
        writeln!(self.0.get_mut(), "{answer}").expect("the program holds");
    }
}
