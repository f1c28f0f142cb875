//! The listener's side: accepts connections until a caller has authenticated.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::exchange::{Answering, POLL_INTERVAL};
use crate::pending::{Origin, Pending};
use crate::secret::{Macs, Protocol, Secret};

/// Maximum number of connections to accept before the pending connections are read.
const ACCEPTS: usize = 16;
/// Maximum number of connections in the kernel's backlog. If the backlog is full, the kernel drops packets,
/// and callers need more than a second to connect.
const BACKLOG: i32 = 1024;

/// A connection, and the MACs of the messages sent and received.
pub type Authenticated = (TcpStream, (Macs, Macs));

/// The result of reading from a connection.
#[derive(Debug)]
pub enum Verdict<S, T> {
    /// The connection is admitted.
    Admitted(S, T),
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
) -> Result<Option<(S, T)>, E> {
    // This fails if the descriptor does not listen. `accept` then reports the error.
    let _ = rustix::net::listen(listener, BACKLOG);
    let mut pending = Pending::default();
    while !is_over()? {
        pending.expire();
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
                Verdict::Admitted(stream, value) => {
                    admitted = Some((stream, value));
                    None
                }
            }
        });
        if admitted.is_some() {
            return Ok(admitted);
        }
        for _ in 0..if ready[0] { ACCEPTS } else { 0 } {
            let Some((origin, stream)) = accept()? else { break };
            if let Some(evicted) = pending.add(origin, stream) {
                busy(evicted);
            }
        }
    }
    Ok(None)
}

/// Accepts connections until a caller has authenticated, and closes all other connections.
///
/// A caller whose connection is closed may connect again. Returns the connection, which is blocking, and the
/// MACs of the messages sent and received. Calls `is_over` at least every 50 ms. Returns `None` after
/// `is_over` has returned true. Makes `listener` non-blocking. `rejected` receives the reason why a
/// connection was not accepted or was closed: `PermissionDenied` means a wrong secret, and `ResourceBusy`
/// that the connection was closed for a newer one.
///
/// # Errors
///
/// The errors of `is_over`, and the listener's errors, converted by `failed`.
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
        Ok((stream, address)) => match stream.set_nonblocking(true) {
            Ok(()) => Ok(Some((address.ip().into(), Answering::new(stream)))),
            Err(e) => {
                rejected(&e);
                Ok(None)
            }
        },
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // The error belongs to that connection, or file descriptors are exhausted. Pause, because retrying at
        // once would busy-loop.
        Err(e) => {
            rejected(&e);
            std::thread::sleep(POLL_INTERVAL);
            Ok(None)
        }
    };
    let read = |mut answering: Answering| match answering.step(secret, of) {
        Ok(Some(macs)) => Verdict::Admitted(answering, macs),
        Ok(None) => Verdict::Pending(answering),
        Err(e) => {
            rejected(&e);
            Verdict::Rejected
        }
    };
    let busy = |answering: Answering| {
        answering.refuse_as_busy(of);
        rejected(&io::ErrorKind::ResourceBusy.into());
    };
    let Some((answering, macs)) = admit(listener, is_over, accept, read, busy)? else { return Ok(None) };
    let stream = answering.into_stream();
    stream.set_nonblocking(false).map_err(&failed)?;
    Ok(Some((stream, macs)))
}
