//! Connections that have not authenticated yet.
//!
//! At most [`MAX_PENDING`] of them are open. A silent one is closed after [`TIMEOUT`], or after [`MIN_TIME`]
//! if others wait. Further connections wait in the kernel's FIFO backlog. So the n-th connection in the
//! backlog is served after at most `n / MAX_PENDING * MIN_TIME`, no matter how many silent ones precede it.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::exchange::{Answering, POLL_INTERVAL};
use crate::secret::{Macs, Protocol, Secret};

/// Maximum number of open connections.
const MAX_PENDING: usize = 64;
/// Time that each connection gets even if others wait. A caller needs one round trip.
const MIN_TIME: Duration = Duration::from_millis(500);
/// Time after which a silent connection is closed.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection, and the MACs of the messages sent and received.
pub type Authenticated = (TcpStream, (Macs, Macs));

/// The result of reading from a connection.
#[derive(Debug)]
pub enum Verdict<T> {
    /// It is admitted.
    Admitted(T),
    /// More bytes are needed.
    Pending,
    /// It is closed.
    Rejected,
}

/// Accepts connections until one is admitted, and closes all others. Returns `None` once `is_over` returns
/// true, which is asked at least every 50 ms.
///
/// `accept` returns the next connection of `listener`, which is non-blocking. `read` reads from a connection.
///
/// # Errors
///
/// Those of `is_over` and `accept`.
pub fn admit<S: AsFd, T, E>(
    listener: &impl AsFd,
    mut is_over: impl FnMut() -> Result<bool, E>,
    mut accept: impl FnMut() -> Result<Option<S>, E>,
    mut read: impl FnMut(&mut S) -> Verdict<T>,
) -> Result<Option<(S, T)>, E> {
    // Oldest first.
    let mut pending = VecDeque::<(Instant, S)>::with_capacity(MAX_PENDING);
    while !is_over()? {
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

/// Accepts connections until a caller has authenticated, and closes all others, which a caller answers by
/// calling again. Returns the blocking connection and the MACs of the messages sent and received, or `None`
/// once `is_over` returns true, which is asked at least every 50 ms. Makes `listener` non-blocking.
/// `rejected` is told why a connection was closed; `PermissionDenied` is a wrong secret.
///
/// # Errors
///
/// Those of `is_over`; those of the listener by `failed`.
pub fn answer<E>(
    listener: &TcpListener,
    secret: &Secret,
    of: &Protocol,
    is_over: impl FnMut() -> Result<bool, E>,
    failed: impl Fn(io::Error) -> E,
    rejected: impl Fn(&io::Error),
) -> Result<Option<Authenticated>, E> {
    listener.set_nonblocking(true).map_err(&failed)?;
    let accept = || match listener.accept() {
        Ok((stream, _)) => match stream.set_nonblocking(true) {
            Ok(()) => Ok(Some(Answering::new(stream))),
            Err(e) => {
                rejected(&e);
                Ok(None)
            }
        },
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // The error of that connection, or a lack of descriptors, which is not worth spinning on.
        Err(e) => {
            rejected(&e);
            std::thread::sleep(POLL_INTERVAL);
            Ok(None)
        }
    };
    let read = |answering: &mut Answering| match answering.step(secret, of) {
        Ok(Some(macs)) => Verdict::Admitted(macs),
        Ok(None) => Verdict::Pending,
        Err(e) => {
            rejected(&e);
            Verdict::Rejected
        }
    };
    let Some((answering, macs)) = admit(listener, is_over, accept, read)? else { return Ok(None) };
    let stream = answering.into_stream();
    stream.set_nonblocking(false).map_err(&failed)?;
    Ok(Some((stream, macs)))
}
