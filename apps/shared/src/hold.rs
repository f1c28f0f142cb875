//! Hold points: a program says to the test that started it what it has reached, and the test says when the
//! program goes on. So a test chooses the moment of an interrupt, and no clock does.
//!
//! The test's side, and the format, are in `test-support`. Release builds have no hold points.
#![allow(dead_code, unreachable_pub, reason = "also a module of a program, which uses a part of it")]

use std::time::Duration;

/// Says that the program has reached `point`, if the test named this point, and waits for the answer. Also
/// returns as soon as `interrupted` returns true.
pub fn reached(point: &str, interrupted: impl Fn() -> bool) {
    #[cfg(debug_assertions)]
    debug::reached(point, interrupted);
    #[cfg(not(debug_assertions))]
    let _ = (point, interrupted);
}

/// Returns the timeout `name`: `usual`, unless the test's answer at a hold point replaced it.
#[must_use]
pub fn timeout(name: &str, usual: Duration) -> Duration {
    #[cfg(debug_assertions)]
    return debug::timeout(name).unwrap_or(usual);
    #[cfg(not(debug_assertions))]
    {
        let _ = name;
        usual
    }
}

#[cfg(debug_assertions)]
mod debug {
    use std::io::{BufRead, BufReader, ErrorKind, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{LazyLock, Mutex, PoisonError};
    use std::time::Duration;

    /// The timeouts that the test has replaced.
    static TIMEOUTS: Mutex<Vec<(String, Duration)>> = Mutex::new(Vec::new());
    /// The points to hold at.
    static POINTS: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("DMA_TEST_HOLD").ok());
    /// One thread at a time speaks with the test.
    static HOLDING: Mutex<()> = Mutex::new(());

    pub(super) fn reached(point: &str, interrupted: impl Fn() -> bool) {
        let Some(points) = &*POINTS else { return };
        if !points.split(',').any(|named| named == point) {
            return;
        }
        let _holding = HOLDING.lock().unwrap_or_else(PoisonError::into_inner);
        let test = std::io::stdin().as_fd().try_clone_to_owned().expect("the test's socket");
        let mut test = BufReader::new(UnixStream::from(test));
        // This fails if the test holds the program no more.
        let _ = writeln!(test.get_mut(), "{point}");
        test.get_mut().set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
        let mut answer = String::new();
        loop {
            match test.read_line(&mut answer) {
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                _ => break,
            }
            if interrupted() {
                return;
            }
        }
        if let Some((name, seconds)) = answer.trim_end().split_once('=') {
            let timeout = Duration::from_secs_f64(seconds.parse().expect("seconds"));
            TIMEOUTS.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), timeout));
        }
    }

    pub(super) fn timeout(name: &str) -> Option<Duration> {
        let timeouts = TIMEOUTS.lock().unwrap_or_else(PoisonError::into_inner);
        timeouts.iter().rev().find(|(named, _)| named == name).map(|(_, timeout)| *timeout)
    }
}
