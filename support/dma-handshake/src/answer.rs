//! The listener's side of connections of one secret.

use std::io;
use std::net::{TcpListener, TcpStream};

use crate::admit::{POLL_INTERVAL, Verdict, admit};
use crate::exchange::{Answering, Step};
use crate::keys::Keys;
use crate::secret::{Protocol, Secret};

/// A connection, and the keys of the messages sent and received.
pub type Authenticated = (TcpStream, (Keys, Keys));

/// Accepts connections until a caller has authenticated, and closes all other connections.
///
/// A caller whose connection is closed may connect again. Returns the connection, which is blocking, and the
/// keys of the messages sent and received. Calls `is_over` at least every 50 ms. Returns `None` after
/// `is_over` has returned true. Makes `listener` non-blocking. `rejected` receives the reason why a
/// connection was not accepted or was closed: the errors of [`Answering::step`], and `ResourceBusy` if the
/// connection was closed because too many are pending.
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
    let read = |answering: Answering| match answering
        .step(of, |id| (id == secret.id()).then_some(*secret))
        .and_then(|step| match step {
            Step::Pending(answering) => Ok(Verdict::Pending(answering)),
            Step::Requested(requested) => requested.reply(&[]).map(Verdict::Admitted),
        }) {
        Ok(verdict) => verdict,
        Err(e) => {
            rejected(&e);
            Verdict::Rejected
        }
    };
    let busy = |answering: Answering| {
        answering.refuse_as_busy(of);
        rejected(&io::ErrorKind::ResourceBusy.into());
    };
    let Some((stream, keys)) = admit(listener, is_over, accept, read, busy)? else { return Ok(None) };
    stream.set_nonblocking(false).map_err(&failed)?;
    Ok(Some((stream, keys)))
}
