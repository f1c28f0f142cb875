//! [`admit`]: accepts connections until one is admitted.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::pending::{Origin, Pending};

/// Maximum time between two calls of `is_over`.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of connections to accept before the pending connections are read.
const ACCEPTS: usize = 16;
/// Maximum number of connections in the kernel's backlog. If the backlog is full, the kernel drops packets,
/// and callers need more than a second to connect.
const BACKLOG: i32 = 1024;

/// The result of reading from a connection.
#[derive(Debug)]
pub enum Verdict<S, T> {
    /// The connection is admitted.
    Admitted(T),
    /// More bytes are needed.
    Pending(S),
    /// The connection must be closed.
    Rejected,
}

/// Accepts connections until one is admitted, and closes the other connections. Calls `is_over` at least
/// every 50 ms. Returns `None` after `is_over` has returned true.
///
/// `accept` returns the next connection of the non-blocking `listener`, and the connection's origin. `read`
/// reads from a connection. `busy` receives a connection that must be closed because too many are
/// [`Pending`].
///
/// # Errors
///
/// The errors of `is_over` and `accept`.
pub fn admit<S: AsFd, T, E>(
    listener: &impl AsFd,
    mut is_over: impl FnMut() -> Result<bool, E>,
    mut accept: impl FnMut() -> Result<Option<(Origin, S)>, E>,
    mut read: impl FnMut(S) -> Verdict<S, T>,
    mut busy: impl FnMut(S),
) -> Result<Option<T>, E> {
    // This fails if the descriptor does not listen. `accept` then reports the error.
    let _ = rustix::net::listen(listener, BACKLOG);
    let mut pending = Pending::default();
    while !is_over()? {
        let mut fds = Vec::with_capacity(1 + pending.iter().len());
        fds.push(PollFd::new(listener, PollFlags::IN));
        fds.extend(pending.iter().map(|stream: &S| PollFd::new(stream, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
        if rustix::event::poll(&mut fds, Some(&timeout)).is_err() {
            // A signal interrupted the call.
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (mut admitted, mut at) = (None, 0);
        pending.filter_map(|stream| {
            at += 1;
            if !ready[at] || admitted.is_some() {
                return Some(stream);
            }
            match read(stream) {
                Verdict::Pending(stream) => Some(stream),
                Verdict::Rejected => None,
                Verdict::Admitted(value) => {
                    admitted = Some(value);
                    None
                }
            }
        });
        if admitted.is_some() {
            return Ok(admitted);
        }
        pending.expire().into_iter().for_each(&mut busy);
        for _ in 0..if ready[0] { ACCEPTS } else { 0 } {
            let Some((origin, stream)) = accept()? else { break };
            if let Some(evicted) = pending.add(origin, stream) {
                busy(evicted);
            }
        }
    }
    Ok(None)
}
