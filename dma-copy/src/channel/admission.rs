//! Connections that have not authenticated yet.
//!
//! At most [`MAX_PENDING`] of them are open. A silent one is closed after [`TIMEOUT`], or after [`MIN_TIME`]
//! if others wait. Further connections wait in the kernel's FIFO backlog. So the n-th connection in the
//! backlog is served after at most `n / MAX_PENDING * MIN_TIME`, no matter how many silent ones precede it.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::failure::Failure;
use crate::{Deadline, POLL_INTERVAL, check_interrupt};

/// Maximum number of open connections.
const MAX_PENDING: usize = 64;
/// Time that each connection gets even if others wait. A host needs one round trip.
const MIN_TIME: Duration = Duration::from_millis(500);
/// Time after which a silent connection is closed.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The result of reading from a connection.
pub(super) enum Verdict<T> {
    Admitted(T),
    /// More bytes are needed.
    Pending,
    Rejected,
}

/// Accepts connections until one is admitted. Returns `None` if none was before `deadline`.
///
/// `accept` returns the next connection of `listener`, which is non-blocking. `read` reads from a connection.
pub(super) fn admit<S: AsFd, T>(
    listener: &impl AsFd,
    deadline: Deadline,
    mut accept: impl FnMut() -> Result<Option<S>, Failure>,
    mut read: impl FnMut(&mut S) -> Verdict<T>,
) -> Result<Option<(S, T)>, Failure> {
    // Oldest first.
    let mut pending = VecDeque::<(Instant, S)>::with_capacity(MAX_PENDING);
    while !deadline.is_over() {
        check_interrupt()?;
        while pending.front().is_some_and(|(since, _)| since.elapsed() >= TIMEOUT) {
            pending.pop_front();
        }
        let has_room = pending.len() < MAX_PENDING
            || pending.front().is_some_and(|(since, _)| since.elapsed() >= MIN_TIME);
        let mut fds = Vec::with_capacity(1 + MAX_PENDING);
        fds.push(PollFd::new(listener, if has_room { PollFlags::IN } else { PollFlags::empty() }));
        fds.extend(pending.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
        if rustix::event::poll(&mut fds, Some(&timeout)).is_err() {
            // EINTR.
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        // Highest index first, because connections are removed.
        for index in (0..pending.len()).rev().filter(|index| ready[index + 1]) {
            match read(&mut pending[index].1) {
                Verdict::Pending => {}
                Verdict::Rejected => {
                    pending.remove(index);
                }
                Verdict::Admitted(value) => {
                    return Ok(pending.remove(index).map(|(_, stream)| (stream, value)));
                }
            }
        }
        if has_room
            && ready[0]
            && let Some(stream) = accept()?
        {
            if pending.len() >= MAX_PENDING {
                pending.pop_front();
            }
            pending.push_back((Instant::now(), stream));
        }
    }
    Ok(None)
}
