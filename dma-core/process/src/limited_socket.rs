//! [`LimitedSocket`]: a socket whose calls share a time limit.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::lock;

/// The time limit of an exchange on a socket, for example of a request and its answer. Clones share it.
///
/// The limit is for all bytes of the exchange together: neither a byte of the peer nor a signal extends it.
/// The time limits of sockets (`SO_RCVTIMEO`, `SO_SNDTIMEO`) begin again with each call.
#[derive(Clone, Debug)]
pub struct ExchangeLimit {
    limit: Duration,
    end: Arc<Mutex<Instant>>,
}

impl ExchangeLimit {
    /// Makes a limit, and begins an exchange. `limit` must be less than a year.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, end: Arc::new(Mutex::new(Instant::now() + limit)) }
    }

    /// Begins another exchange.
    pub fn restart(&self) {
        *lock(&self.end) = Instant::now() + self.limit;
    }

    fn left(&self) -> Duration {
        lock(&self.end).saturating_duration_since(Instant::now())
    }
}

/// A socket that blocks until the end of the limit at most. Reads and writes fail with `TimedOut` after it.
#[derive(Debug)]
pub struct LimitedSocket<S> {
    socket: S,
    limit: ExchangeLimit,
}

impl<S: AsFd> LimitedSocket<S> {
    /// Limits the calls on `socket`.
    #[must_use]
    pub const fn new(socket: S, limit: ExchangeLimit) -> Self {
        Self { socket, limit }
    }

    /// Makes a call that does not block, once the socket is ready.
    fn when_ready<R>(&self, events: PollFlags, mut call: impl FnMut() -> Result<R, Errno>) -> io::Result<R> {
        loop {
            // The first call finds bytes that arrived before the limit, however late this thread runs.
            match call() {
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                result => return Ok(result?),
            }
            let left = self.limit.left();
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // An interrupted poll is repeated with the time that is left. The limit fits a `Timespec`.
            match poll(&mut [PollFd::new(&self.socket, events)], Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl<S: AsFd> Read for LimitedSocket<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.when_ready(PollFlags::IN, || {
            recv(&self.socket, &mut *bytes, RecvFlags::DONTWAIT).map(|(n, _)| n)
        })
    }
}

impl<S: AsFd> Write for LimitedSocket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.when_ready(PollFlags::OUT, || send(&self.socket, bytes, flags))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    /// Sends bytes more often than the limit passes.
    #[test]
    fn bytes_do_not_extend_the_limit() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let (ends, ended) = channel::<()>();
        let dripping = thread::spawn(move || {
            while ended
                .recv_timeout(LIMIT / 8)
                .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                (&theirs).write_all(&[1]).expect("the other side reads");
            }
        });
        let began = Instant::now();
        let limit = ExchangeLimit::new(LIMIT);
        let mut socket = LimitedSocket::new(&ours, limit);
        let error = socket.read_exact(&mut [0; 4000]).expect_err("the peer is too slow");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= LIMIT, "{:?}", began.elapsed());
        // The end of the other thread closes its socket. It may wait for room until then.
        drop(ends);
        let mut left = Vec::new();
        (&ours).read_to_end(&mut left).expect("what is left, and the end");
        dripping.join().expect("no panic");
    }

    #[test]
    fn another_exchange_has_its_own_time() {
        let limit = ExchangeLimit::new(Duration::from_secs(3600));
        *lock(&limit.end) = Instant::now();
        assert!(limit.left().is_zero());
        limit.clone().restart();
        assert!(!limit.left().is_zero(), "clones share the limit");
    }

    #[test]
    fn a_peer_that_does_not_read_is_given_up() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let error = LimitedSocket::new(&ours, ExchangeLimit::new(LIMIT)).write_all(&vec![0; 64 << 20]);
        assert_eq!(error.expect_err("the buffer is full").kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn bytes_that_arrived_in_time_are_read_later() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        (&theirs).write_all(b"ab").expect("room");
        drop(theirs);
        let mut socket = LimitedSocket::new(&ours, ExchangeLimit::new(Duration::ZERO));
        let mut read = Vec::new();
        socket.read_to_end(&mut read).expect("they are there");
        assert_eq!(read, b"ab");
        let error = socket.write(b"c").expect_err("the peer is gone");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
