//! The comm channel: messages between the programs of a host and its DPU.
//!
//! The DPU's side is a [`Server`], bound to a name and to the representor of one function of the host. The
//! host's side is a [`Client`] with the same name on the device of that function. The server and the client
//! have a [`Channel`] for each connection.
//!
//! Calls with a `timeout` block at most for that time. A channel may be used by several threads.

mod callbacks;
mod endpoint;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dma_core::{Error, ErrorKind, PciAddress, Result};
use dma_process::lock;

use crate::device::{Device, List, OpenRepresentor, c_name, pick};
use crate::error::{error, load};
use crate::ffi::Sdk;
use crate::options::DocaOptions;
use endpoint::{Endpoint, Sent};

/// The side of the DPU: accepts connections of one function of the host.
#[derive(Debug)]
pub struct Server {
    endpoint: Arc<Mutex<Endpoint>>,
    max: usize,
}

/// The side of the host: connects to a server.
#[derive(Debug)]
pub struct Client {
    device: Arc<Device>,
    name: String,
    /// The connections of calls that have timed out, one for each thread that called at the same time. The
    /// next call waits for one of them.
    begun: Mutex<Vec<Arc<Mutex<Endpoint>>>>,
}

/// A connection, which keeps the order and boundaries of messages.
#[derive(Debug)]
pub struct Channel {
    endpoint: Arc<Mutex<Endpoint>>,
    peer: u64,
    max: usize,
}

/// Opens the device that `options` name. It must support the server's or the client's side of the comm
/// channel.
fn open(options: &DocaOptions, name: &str, server: bool) -> Result<Arc<Device>> {
    let sdk = Sdk::new(options.load()?);
    if sdk.comch.is_none() {
        return Err(match &sdk.comch_missing {
            Some(why) => load(why.clone()),
            None => error(
                ErrorKind::MissingSdk,
                "no comm channel is loaded: the comm channel of DOCA 1.5 to 2.2 is not supported",
            )
            .with_hint("install a later SDK with the package doca-sdk-comch, or use another channel"),
        });
    }
    let list = List::new(&sdk)?;
    let device = pick(&list, options, |item| {
        let can = item.capabilities();
        let (side, able, hint) = if server {
            ("server", can.comch_server, "servers run on the DPU, on a device that has representors")
        } else {
            ("client", can.comch_client, "clients run on the host, on a function of the BlueField")
        };
        (!able).then(|| {
            error(
                ErrorKind::Unsupported,
                format!("device {} cannot be a comm channel {side}", item.address()),
            )
            .with_hint(hint)
        })
    })?;
    let device = Arc::new(device.open()?);
    Endpoint::check_name(&device, name)?;
    Ok(device)
}

/// Returns a function that adds the failed operation to an error.
fn of(operation: &'static str) -> impl Fn(Error) -> Error {
    move |e| e.with_operation(operation)
}

impl Server {
    /// Starts a server called `name` on the device that `options` name. It accepts clients of the host's
    /// function at the PCI address `representor`.
    ///
    /// # Errors
    ///
    /// See [`DocaEngine::open`](crate::DocaEngine::open) for the device; `NotFound` if the device has no
    /// such representor, with a list of its representors; `InUse` if another server has the name;
    /// `InvalidArgument` or `OutOfRange` for an invalid name.
    pub fn listen(options: &DocaOptions, representor: PciAddress, name: &str) -> Result<Self> {
        Self::try_listen(options, representor, name).map_err(of("listen"))
    }

    fn try_listen(options: &DocaOptions, representor: PciAddress, name: &str) -> Result<Self> {
        let device = open(options, name, true)?;
        let representor: OpenRepresentor = device.open_representor(representor)?;
        let endpoint = Endpoint::new(&device, &c_name(name)?, Some(representor))?;
        let max = endpoint.max();
        Ok(Self { endpoint: Arc::new(Mutex::new(endpoint)), max })
    }

    /// Waits for a client.
    ///
    /// # Errors
    ///
    /// `TimedOut` if no client connects; `Closed` if the device stopped the server.
    pub fn accept(&self, timeout: Duration) -> Result<Channel> {
        let peer = wait(&self.endpoint, timeout, "no client connected", |endpoint| endpoint.accepted());
        let peer = peer.map_err(of("accept"))?;
        Ok(Channel { endpoint: Arc::clone(&self.endpoint), peer, max: self.max })
    }

    /// Returns the maximum length of a message, in bytes.
    #[must_use]
    pub const fn max_message(&self) -> usize {
        self.max
    }
}

impl Client {
    /// Opens the device that `options` name, for a client of servers called `name`. Does not connect yet.
    ///
    /// # Errors
    ///
    /// See [`DocaEngine::open`](crate::DocaEngine::open) for the device; `InvalidArgument` or `OutOfRange`
    /// for an invalid name.
    pub fn new(options: &DocaOptions, name: &str) -> Result<Self> {
        let device = open(options, name, false).map_err(of("open client"))?;
        Ok(Self { device, name: name.to_owned(), begun: Mutex::default() })
    }

    /// Connects to the server. If the server has not started yet, waits for it. After a timeout the next call
    /// goes on with the same connection, so a slow server needs no longer timeout. To give up, drop the
    /// client: a server could still accept the connection.
    ///
    /// # Errors
    ///
    /// `TimedOut` if no server exists or answers; errors of the SDK.
    pub fn connect(&self, timeout: Duration) -> Result<Channel> {
        let deadline = Instant::now().checked_add(timeout);
        let name = c_name(&self.name)?;
        loop {
            let begun = lock(&self.begun).pop();
            let endpoint = match begun {
                Some(endpoint) => endpoint,
                None => Endpoint::new(&self.device, &name, None)
                    .map(|endpoint| Arc::new(Mutex::new(endpoint)))
                    .map_err(of("connect"))?,
            };
            let max = lock(&endpoint).max();
            let left =
                deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(Instant::now()));
            let what = "no server answered";
            match wait(&endpoint, left, what, |endpoint| endpoint.connected()) {
                Ok(peer) => return Ok(Channel { endpoint, peer, max }),
                // The server may not have started yet.
                Err(e) if e.kind() == ErrorKind::Closed && deadline.is_none_or(|d| Instant::now() < d) => {
                    drop(endpoint);
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => {
                    let message = format!("{what} on device {} to {:?}", self.device.address, self.name);
                    let e = if e.kind() == ErrorKind::Closed {
                        Error::new(ErrorKind::TimedOut, message)
                    } else {
                        if e.kind() == ErrorKind::TimedOut {
                            lock(&self.begun).push(endpoint);
                        }
                        e
                    };
                    return Err(e.with_operation("connect").with_hint(
                        "start the server on the DPU, for this function's representor and with the same name",
                    ));
                }
            }
        }
    }
}

impl Channel {
    /// Returns the maximum length of a message, in bytes.
    #[must_use]
    pub const fn max_message(&self) -> usize {
        self.max
    }

    /// Sends a message, and waits until the device has sent it. Messages arrive whole and in order. When the
    /// call returns, the peer may not have received the message yet.
    ///
    /// # Errors
    ///
    /// `OutOfRange` for a message longer than [`max_message`](Self::max_message), with both numbers;
    /// `InvalidArgument` for an empty message; `TimedOut` if the message was not sent in time, though it may
    /// still be sent later; `Closed` if the peer has disconnected or died.
    pub fn send(&self, message: &[u8], timeout: Duration) -> Result<()> {
        self.try_send(message, timeout).map_err(of("send"))
    }

    fn try_send(&self, message: &[u8], timeout: Duration) -> Result<()> {
        if message.len() > self.max {
            return Err(error(ErrorKind::OutOfRange, format!("a message of {} bytes", message.len()))
                .with_numbers(message.len() as u64, self.max as u64)
                .with_hint("split it, or copy bulk data by DMA"));
        }
        if message.is_empty() {
            return Err(
                error(ErrorKind::InvalidArgument, "an empty message").with_hint("send at least 1 byte")
            );
        }
        let mut task = None;
        let result = wait(&self.endpoint, timeout, "the message has not been sent", |endpoint| {
            let number = match task {
                Some(number) => number,
                None => match endpoint.send(self.peer, message)? {
                    Some(number) => *task.insert(number),
                    None => return Ok(None),
                },
            };
            match endpoint.sent(number) {
                Sent::Waiting => Ok(None),
                Sent::Done => Ok(Some(())),
                Sent::Failed(e) => Err(e),
            }
        });
        if let (Err(_), Some(number)) = (&result, task) {
            lock(&self.endpoint).abandon(number);
        }
        result
    }

    /// Waits for a message.
    ///
    /// # Errors
    ///
    /// `TimedOut` if no message arrives; `Closed` if the peer has disconnected or died, and all its messages
    /// were received.
    pub fn recv(&self, timeout: Duration) -> Result<Vec<u8>> {
        wait(&self.endpoint, timeout, "no message arrived", |endpoint| endpoint.message(self.peer))
            .map_err(of("receive"))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        lock(&self.endpoint).disconnect(self.peer);
    }
}

/// Makes progress until `done` returns a value or an error. Sleeps between events.
fn wait<T>(
    endpoint: &Mutex<Endpoint>,
    timeout: Duration,
    what: &'static str,
    mut done: impl FnMut(&mut Endpoint) -> Result<Option<T>>,
) -> Result<T> {
    /// Maximum time of a sleep. It is short, because another thread may consume the event that this thread
    /// waits for.
    const NAP: Duration = Duration::from_millis(2);

    let deadline = Instant::now().checked_add(timeout);
    loop {
        let sleep = {
            let mut endpoint = lock(endpoint);
            endpoint.progress();
            if let Some(answer) = done(&mut endpoint)? {
                return Ok(answer);
            }
            endpoint.arm()
        };
        let left = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => NAP,
        };
        if left.is_zero() {
            return Err(error(ErrorKind::TimedOut, what));
        }
        sleep.nap(left.min(NAP));
    }
}
