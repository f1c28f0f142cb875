//! [`Node`]: requests to queue pairs of other devices, which belong to other processes of this user on this
//! machine. The bytes travel over Unix sockets, and the device that owns the memory checks keys, ranges and
//! rights.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use dma_standin::{ExchangeLimit, ForkMark, LimitedSocket, with_signals_blocked};
use verbs_sys::*;

use crate::device::{SendRequest, State, lock, wc};

/// Number of the low bits of a queue pair's number; the bits above identify its device.
const NUMBER_BITS: u32 = 12;
/// Maximum number of devices on a machine, because a queue pair's number has 24 bits.
const NODES: u32 = 1 << 12;
/// Time limit for a request and its answer, with all their bytes. It does not depend on the queue pair's
/// timeout: a real device also answers while its program is stopped or waits for a CPU, and this one does
/// not.
const PATIENCE: Duration = Duration::from_secs(30);
/// The length of a request in bytes.
const REQUEST: usize = 88;
/// Time until a request that found no receive is sent again.
const UNREADY_DELAY: Duration = Duration::from_millis(1);

/// The part of a request that is sent to the peer of a queue pair.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// `IBV_WR_*`.
    pub(crate) op: c_int,
    /// `IBV_QPT_*` of both queue pairs.
    pub(crate) qp_type: c_int,
    /// The peer's queue pair (`to`), and the request's own queue pair (`from`).
    pub(crate) to: u32,
    pub(crate) from: u32,
    /// The key of the memory; for a datagram, the key of the peer's queue pair.
    pub(crate) rkey: u32,
    pub(crate) imm: u32,
    pub(crate) is_solicited: bool,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
}

/// A request that this device has to send.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: SendRequest,
    /// Bytes to write, or bytes that were read.
    pub(crate) bytes: Vec<u8>,
    /// The number of resets of the queue pair before this request.
    pub(crate) resets: u64,
}

/// A device's entry among the machine's devices.
#[derive(Debug)]
pub(crate) struct Node {
    id: u32,
    /// The process that claimed the entry. A forked child does not have the threads of this value.
    process: ForkMark,
    listener: UnixListener,
    is_served: bool,
    last: u32,
    peers: HashMap<u32, Sender<Job>>,
    state: Weak<Mutex<State>>,
}

/// Returns the abstract socket name of a device. An abstract name has no file.
fn address(id: u32) -> io::Result<SocketAddr> {
    let user = rustix::process::getuid().as_raw();
    SocketAddr::from_abstract_name(format!("rdma-emu.{user}.{id}"))
}

/// Returns true if the other end is a process of this user. The check is needed because any user may bind an
/// abstract name.
fn is_own(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::getuid())
}

impl Node {
    /// Claims a free entry.
    pub(crate) fn new(state: Weak<Mutex<State>>) -> io::Result<Self> {
        let pid = std::process::id();
        for id in (0..NODES - 1).map(|at| pid.wrapping_add(at) % (NODES - 1) + 1) {
            match UnixListener::bind_addr(&address(id)?) {
                Ok(listener) => {
                    let peers = HashMap::new();
                    let process = ForkMark::new();
                    return Ok(Self { id, process, listener, is_served: false, last: 0, peers, state });
                }
                Err(e) if e.kind() == ErrorKind::AddrInUse => {}
                Err(e) => return Err(e),
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// Returns true if this process claimed the entry. False in a forked child.
    pub(crate) fn is_of_this_process(&self) -> bool {
        !self.process.is_child()
    }

    /// Returns a number for a queue pair.
    pub(crate) fn number(&mut self, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        let numbers = 1 << NUMBER_BITS;
        let mut candidates = (1..=numbers).map(|at| (self.last + at) % numbers);
        let found = candidates.find(|low| *low > 0 && !is_taken(self.id << NUMBER_BITS | low))?;
        self.last = found;
        Some(self.id << NUMBER_BITS | found)
    }

    /// Returns true if a queue pair belongs to another device.
    pub(crate) const fn is_foreign(&self, number: u32) -> bool {
        number >> NUMBER_BITS != self.id
    }

    /// Answers requests of other devices from now on.
    pub(crate) fn serve(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_served, true) {
            let (listener, state) = (self.listener.try_clone()?, self.state.clone());
            start_thread(move || accept(&listener, &state))?;
        }
        Ok(())
    }

    /// Sends a request. [`State::finish`] gets the answer. Returns the request if it cannot be sent.
    pub(crate) fn send(&mut self, job: Job) -> Option<Job> {
        let peer = job.request.remote.to >> NUMBER_BITS;
        let sender = match self.peers.entry(peer) {
            Entry::Occupied(sender) => sender.into_mut(),
            Entry::Vacant(place) => {
                let ((sender, jobs), state) = (channel(), self.state.clone());
                if start_thread(move || ask(peer, &jobs, &state)).is_err() {
                    return Some(job);
                }
                place.insert(sender)
            }
        };
        // Sending works, because the receiving thread ends only after this value is dropped.
        sender.send(job).err().map(|error| error.0)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Ends the thread that accepts connections.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn start_thread(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    with_signals_blocked(|| thread::Builder::new().name("rdma-emu".to_owned()).spawn(body)).map(drop)
}

/// Runs the thread that accepts connections of other devices.
fn accept(listener: &UnixListener, state: &Weak<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept() {
        let state = state.clone();
        if is_own(&stream) {
            // If no thread can be started, the peer gets no answer.
            let _ = start_thread(move || answer(stream, &state));
        }
    }
}

/// Runs the thread that answers the requests of a connection until the connection ends.
fn answer(mut stream: UnixStream, state: &Weak<Mutex<State>>) {
    let mut next = || -> io::Result<()> {
        let mut request = [0; REQUEST];
        stream.read_exact(&mut request)?;
        let request = Request::decode(&request);
        let state = state.upgrade().ok_or(ErrorKind::BrokenPipe)?;
        if request.len > u64::from(lock(&state).max_msg_sz) {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; request.len as usize];
        if !request.returns_bytes() {
            stream.read_exact(&mut bytes)?;
        }
        let (status, received) = lock(&state).answer(&request, &mut bytes);
        // The answer is on its way before this program can see the completion, and end.
        let mut answered = stream.write_all(&status.to_le_bytes());
        if answered.is_ok() && request.returns_bytes() && status == 0 {
            answered = stream.write_all(&bytes);
        }
        if let Some(received) = received {
            lock(&state).deliver_answered(received);
        }
        answered
    };
    while next().is_ok() {}
}

/// Runs the thread that sends requests to a device.
fn ask(peer: u32, jobs: &Receiver<Job>, state: &Weak<Mutex<State>>) {
    let mut connection = None;
    // Requests that found no receive, and the times at which they are sent again.
    let mut unready: VecDeque<(Instant, Job)> = VecDeque::new();
    loop {
        let due = unready.front().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let next = match due {
            None => jobs.recv().ok(),
            Some(Duration::ZERO) => unready.pop_front().map(|(_, job)| job),
            Some(due) => match jobs.recv_timeout(due) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => None,
            },
        };
        let Some(mut job) = next else { return };
        let had_connection = connection.is_some();
        let mut status = exchange(&mut connection, peer, &mut job);
        let is_gone = |e: &io::Error| !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        if had_connection && status.as_ref().is_err_and(is_gone) {
            // The connection may lead to an earlier device that had the same entry. A device that only takes
            // long must not get a request twice.
            connection = None;
            status = exchange(&mut connection, peer, &mut job);
        }
        if status.is_err() {
            connection = None;
        }
        let Some(state) = state.upgrade() else { return };
        let again = lock(&state).finish(job, status.unwrap_or(wc::NO_ANSWER));
        unready.extend(again.map(|job| (Instant::now() + UNREADY_DELAY, job)));
    }
}

/// Sends a request, and returns the status in the answer. Bytes that were read replace the job's bytes.
fn exchange(connection: &mut Option<UnixStream>, peer: u32, job: &mut Job) -> io::Result<i32> {
    let stream = match connection {
        Some(stream) => stream,
        None => connection.insert(UnixStream::connect_addr(&address(peer)?)?),
    };
    if !is_own(stream) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut stream = LimitedSocket::new(&*stream, ExchangeLimit::new(PATIENCE));
    let request = &job.request.remote;
    stream.write_all(&request.encode())?;
    if !request.returns_bytes() {
        stream.write_all(&job.bytes)?;
    }
    let mut status = [0; 4];
    stream.read_exact(&mut status)?;
    let status = i32::from_le_bytes(status);
    if request.returns_bytes() && status == 0 {
        job.bytes.resize(request.len as usize, 0);
        stream.read_exact(&mut job.bytes)?;
    }
    Ok(status)
}

impl Request {
    /// Returns true if the peer's answer is the request's status.
    pub(crate) const fn is_reliable(&self) -> bool {
        self.qp_type == QPT_RC
    }

    /// Returns true for a request whose bytes come from the peer.
    pub(crate) const fn returns_bytes(&self) -> bool {
        matches!(self.op, WR_RDMA_READ | WR_ATOMIC_CMP_AND_SWP | WR_ATOMIC_FETCH_AND_ADD)
    }

    /// Returns true for a request that uses a receive of the peer.
    pub(crate) const fn uses_receive(&self) -> bool {
        matches!(self.op, WR_SEND | WR_SEND_WITH_IMM | WR_RDMA_WRITE_WITH_IMM)
    }

    /// Returns the rights that the peer must have granted.
    pub(crate) const fn rights(&self) -> c_int {
        match self.op {
            WR_RDMA_READ => access::REMOTE_READ,
            WR_ATOMIC_CMP_AND_SWP | WR_ATOMIC_FETCH_AND_ADD => access::REMOTE_ATOMIC,
            _ => access::REMOTE_WRITE,
        }
    }

    /// Returns the `IBV_WC_*` opcode of the request's completion.
    pub(crate) const fn completion(&self) -> c_int {
        match self.op {
            WR_RDMA_WRITE | WR_RDMA_WRITE_WITH_IMM => 1,
            WR_RDMA_READ => 2,
            WR_ATOMIC_CMP_AND_SWP => 3,
            WR_ATOMIC_FETCH_AND_ADD => 4,
            _ => 0,
        }
    }

    fn encode(&self) -> [u8; REQUEST] {
        let &Self { op, qp_type, to, from, rkey, imm, is_solicited, addr, len, compare_add, swap } = self;
        let mut bytes = [0; REQUEST];
        let numbers = [op as u64, qp_type as u64, is_solicited.into(), to.into(), from.into(), rkey.into()];
        let numbers = numbers.into_iter().chain([imm.into(), addr, len, compare_add, swap]);
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; REQUEST]) -> Self {
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|number| number.iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)));
        let mut next = || numbers.next().unwrap_or(0);
        Self {
            op: next() as c_int,
            qp_type: next() as c_int,
            is_solicited: next() != 0,
            to: next() as u32,
            from: next() as u32,
            rkey: next() as u32,
            imm: next() as u32,
            addr: next(),
            len: next(),
            compare_add: next(),
            swap: next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded_as_they_were_encoded() {
        let request = Request {
            op: WR_ATOMIC_CMP_AND_SWP,
            qp_type: QPT_RC,
            to: 1 << 23,
            from: 7,
            rkey: u32::MAX,
            imm: 0x0102_0304,
            is_solicited: true,
            addr: 1 << 63 | 5,
            len: 8,
            compare_add: u64::MAX - 1,
            swap: 9,
        };
        assert_eq!(Request::decode(&request.encode()), request);
    }

    #[test]
    fn devices_have_numbers_of_their_own() {
        let (mut a, mut b) = (Node::new(Weak::new()).unwrap(), Node::new(Weak::new()).unwrap());
        let first = a.number(|_| false).unwrap();
        let second = a.number(|number| number == first + 1).unwrap();
        assert_eq!(second, first + 2);
        let other = b.number(|_| false).unwrap();
        assert!(a.is_foreign(other) && b.is_foreign(first) && !a.is_foreign(second));
        assert_eq!(a.number(|_| true), None);
    }
}
