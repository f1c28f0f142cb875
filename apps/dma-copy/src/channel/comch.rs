//! DOCA's comm channel, between a BlueField and its host. The DPU's server has a name and serves one function
//! of the host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dma::doca::DocaOptions;
use dma::doca::comch::{Channel as Comch, Client, Server};
use dma::{EngineName, ErrorKind};

use super::{Channel, Receiver, Sender, no_host_connected};
use crate::deadline::{Deadline, POLL_INTERVAL, check_interrupt};
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::Role;

pub(super) fn open(name: &str, options: &Options, deadline: Deadline) -> Result<Channel, Failure> {
    let explain = |e: dma::Error| failure!(Connecting, "comch:{name}: {e}");
    let device = device(options).map_err(explain)?;
    let channel = match options.role() {
        Role::Dpu => {
            let Some(representor) = options.rep_pci else {
                return Err(failure!(
                    Connecting,
                    "comch:{name}: no function of the host was chosen; give its address as the DPU sees it, by --rep-pci"
                ));
            };
            let server = Server::listen(&device, representor, name).map_err(explain)?;
            until(deadline, explain, |time| server.accept(time))?
                .ok_or_else(|| no_host_connected(&format!("comch:{name}"), deadline, ""))?
        }
        Role::Host => {
            let client = Client::new(&device, name).map_err(explain)?;
            until(deadline, explain, |time| client.connect(time))?.ok_or_else(|| {
                failure!(
                    Connecting,
                    "no DPU listened on comch:{name} within {}; start it with the same --channel, and with --rep-pci for this host's function, or give a longer --timeout",
                    deadline.shown()
                )
            })?
        }
    };
    let max_message = channel.max_message();
    let channel = Arc::new(channel);
    Ok(Channel {
        sender: Box::new(Half { channel: Arc::clone(&channel), timeout: options.timeout }),
        receiver: Box::new(Half { channel, timeout: options.timeout }),
        max_message,
    })
}

/// Returns the options of the channel's device: the device of `--pci-addr`, or else the engine's device.
fn device(options: &Options) -> dma::Result<DocaOptions> {
    let name: EngineName = options.engine().parse()?;
    let mut device =
        if name.backend() == "doca" { DocaOptions::from_name(&name)? } else { DocaOptions::new() };
    device.address = options.pci_addr.or(device.address);
    Ok(device)
}

/// Repeats `try_it` while it times out. Returns `None` after the deadline.
fn until<T>(
    deadline: Deadline,
    explain: impl Fn(dma::Error) -> Failure,
    mut try_it: impl FnMut(Duration) -> dma::Result<T>,
) -> Result<Option<T>, Failure> {
    loop {
        check_interrupt()?;
        match try_it(POLL_INTERVAL.min(deadline.left())) {
            Ok(found) => return Ok(Some(found)),
            Err(e) if e.kind() != ErrorKind::TimedOut => return Err(explain(e)),
            Err(_) if deadline.is_over() => return Ok(None),
            Err(_) => {}
        }
    }
}

struct Half {
    channel: Arc<Comch>,
    timeout: Duration,
}

impl Sender for Half {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.channel.send(message, self.timeout).map_err(|e| explain(&e))
    }
}

impl Receiver for Half {
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        loop {
            match self.channel.recv(Duration::from_secs(1)) {
                Ok(message) => {
                    *into = message;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::TimedOut => {}
                Err(e) => return Err(explain(&e)),
            }
        }
    }
}

fn explain(e: &dma::Error) -> io::Error {
    let kind = match e.kind() {
        ErrorKind::Closed => io::ErrorKind::UnexpectedEof,
        ErrorKind::TimedOut => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, e.to_string())
}
