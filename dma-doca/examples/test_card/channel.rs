//! Messages between the two sides: over the comm channel, or over TCP between programs that know a secret.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use dma_doca::comch::{self, Client, Server};
use dma_handshake::{Authenticated, Protocol, Receiving, Secret, Sending};

use crate::{Error, Options, Side};

const NAME: &str = "dma-test-card";
const PROTOCOL: Protocol =
    Protocol { name: *b"DCARDTS", version: b'2', request_len: 0, reply_len: 0, program: "test_card" };
/// Maximum length of a message in bytes: the lowest known limit of a comm channel.
const MAX: usize = 4080;

pub(crate) struct Channel {
    carrier: Carrier,
    timeout: Duration,
}

enum Carrier {
    /// The server of a DPU must live as long as its connection.
    Comch(comch::Channel, #[expect(dead_code, reason = "kept open")] Option<Server>),
    Tcp(Sending<TcpStream>, Receiving<TcpStream>),
}

impl Channel {
    /// Waits for the other side, up to the timeout.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let timeout = options.timeout();
        let carrier = match &options.tcp {
            Some(address) => tcp(options, address)?,
            None if options.side == Side::Dpu => {
                let representor = options.rep.ok_or("the DPU's side needs --rep, or --tcp on both sides")?;
                let server = Server::listen(&options.device(), representor, NAME)?;
                println!("waiting for the host's test_card");
                Carrier::Comch(server.accept(timeout)?, Some(server))
            }
            None => {
                println!("waiting for the DPU's test_card");
                Carrier::Comch(Client::new(&options.device(), NAME)?.connect(timeout)?, None)
            }
        };
        Ok(Self { carrier, timeout })
    }

    /// Maximum time to wait for the other side.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        match &mut self.carrier {
            Carrier::Comch(channel, _) => channel.send(message, self.timeout)?,
            Carrier::Tcp(sending, _) => sending.send(message)?,
        }
        Ok(())
    }

    /// Waits for a message, up to the timeout.
    pub(crate) fn receive(&mut self) -> Result<Vec<u8>, Error> {
        match &mut self.carrier {
            Carrier::Comch(channel, _) => Ok(channel.recv(self.timeout)?),
            Carrier::Tcp(_, receiving) => {
                let mut message = Vec::new();
                receiving.receive(&mut message).map_err(|e| match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("the other side sent no message for {} s", self.timeout.as_secs())
                    }
                    _ => format!("the other side is gone: {e}"),
                })?;
                Ok(message)
            }
        }
    }
}

fn tcp(options: &Options, address: &str) -> Result<Carrier, Error> {
    let path = options.secret_file.as_deref().ok_or("--tcp needs --secret-file")?;
    let secret = Secret::read(path)?;
    let deadline = Instant::now() + options.timeout();
    let (stream, (ours, theirs)) = match options.side {
        Side::Dpu => {
            let listener = TcpListener::bind(address)?;
            println!("waiting for the host's test_card on {}", listener.local_addr()?);
            let is_over = || Ok(Instant::now() > deadline);
            let rejected = |e: &io::Error| eprintln!("refused a connection: {e}");
            dma_handshake::answer(&listener, &secret, &PROTOCOL, is_over, |e: io::Error| e, rejected)?
                .ok_or("no host connected in time")?
        }
        Side::Host => {
            println!("waiting for the DPU's test_card at {address}");
            call(address, &secret, deadline)?
        }
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(options.timeout()))?;
    stream.set_write_timeout(Some(options.timeout()))?;
    let receiving = Receiving::new(stream.try_clone()?, Some(theirs), MAX);
    Ok(Carrier::Tcp(Sending::new(stream, Some(ours)), receiving))
}

/// Connects to the DPU, which may not have started yet.
fn call(address: &str, secret: &Secret, deadline: Instant) -> Result<Authenticated, Error> {
    loop {
        let called = TcpStream::connect(address).and_then(|mut stream| {
            let keys = dma_handshake::call(&mut stream, secret, &PROTOCOL, || Instant::now() > deadline)?;
            Ok((stream, keys))
        });
        match called {
            Ok(connection) => return Ok(connection),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Err(format!("{address} does not know the secret").into());
            }
            Err(e) if Instant::now() > deadline => {
                return Err(format!("cannot connect to the DPU's test_card at {address}: {e}").into());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
