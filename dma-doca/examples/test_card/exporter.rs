//! The side whose memory is copied. It executes the requests of the other side.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dma_core::{Access, DmaEngineExt, ErrorKind, Export, MemoryRequest, Window};
use dma_doca::DocaEngine;

use crate::channel::Channel;
use crate::{Error, Options};

/// Length of the memory, in bytes, that the child process exports before it is killed.
pub(crate) const CHILD_LEN: usize = 64 << 10;
/// Time limit for the other side's copies when an export is revoked.
const REVOKE: Duration = Duration::from_secs(10);

/// A request. Lengths are little-endian numbers of 8 bytes, rights are the bits of `Access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Ends the exporter's part.
    Done,
    /// Replaces the exported memory by new memory that holds [`sample`]. The answer is the export's
    /// descriptor.
    Export { len: u64, rights: Access },
    /// Asks for a checksum. The answer is the CRC-32 of the exported memory, in 4 bytes.
    Checksum,
    /// Revokes the export. The answer is empty.
    Revoke,
    /// Starts a child process that exports [`CHILD_LEN`] bytes. The answer is the export's descriptor.
    ExportInChild,
    /// Kills the child process. The answer is empty.
    KillChild,
}

impl Request {
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Self::Done => vec![0],
            Self::Export { len, rights } => [&[1, rights.bits() as u8][..], &len.to_le_bytes()].concat(),
            Self::Checksum => vec![2],
            Self::Revoke => vec![3],
            Self::ExportInChild => vec![4],
            Self::KillChild => vec![5],
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(match bytes {
            [0] => Self::Done,
            [1, rights, len @ ..] => Self::Export {
                len: u64::from_le_bytes(len.try_into().ok()?),
                rights: Access::from_bits(u32::from(*rights))?,
            },
            [2] => Self::Checksum,
            [3] => Self::Revoke,
            [4] => Self::ExportInChild,
            [5] => Self::KillChild,
            _ => return None,
        })
    }
}

/// First byte of an answer.
pub(crate) mod answer {
    pub(crate) const DONE: u8 = 0;
    /// The device does not support the request. The reason follows.
    pub(crate) const UNSUPPORTED: u8 = 1;
    /// The request failed. The reason follows.
    pub(crate) const FAILED: u8 = 2;
}

/// Returns the initial content of exported memory.
pub(crate) fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i >> 10) as u8).collect()
}

/// The memory of this side with its export, or the child process that exports memory.
#[derive(Default)]
struct Exporter {
    exported: Option<(Window, Option<Export>)>,
    child: Option<Child>,
}

/// Answers requests until the last one.
pub(crate) fn serve(engine: &DocaEngine, options: &Options, channel: &mut Channel) -> Result<(), Error> {
    let mut exporter = Exporter::default();
    loop {
        let message = channel.receive()?;
        let request = Request::parse(&message).ok_or("the other side sent an unknown request")?;
        if request == Request::Done {
            exporter.kill()?;
            return channel.send(&[answer::DONE]);
        }
        let reply = match exporter.execute(engine, options, request) {
            Ok(bytes) => [&[answer::DONE], &bytes[..]].concat(),
            Err(e) => {
                let unsupported =
                    e.downcast_ref::<dma_core::Error>().is_some_and(|e| e.kind() == ErrorKind::Unsupported);
                let code = if unsupported { answer::UNSUPPORTED } else { answer::FAILED };
                [&[code], e.to_string().as_bytes()].concat()
            }
        };
        channel.send(&reply)?;
    }
}

impl Exporter {
    fn execute(
        &mut self,
        engine: &DocaEngine,
        options: &Options,
        request: Request,
    ) -> Result<Vec<u8>, Error> {
        match request {
            Request::Done => Ok(Vec::new()),
            Request::Export { len, rights } => {
                self.exported = None;
                let (window, export) = export(engine, usize::try_from(len)?, rights)?;
                let descriptor = export.descriptor().to_bytes();
                self.exported = Some((window, Some(export)));
                Ok(descriptor)
            }
            Request::Checksum => {
                let (window, _) = self.exported.as_ref().ok_or("nothing is exported")?;
                let mut bytes = vec![0; window.len()];
                window.read_at(0, &mut bytes)?;
                Ok(crc32fast::hash(&bytes).to_le_bytes().to_vec())
            }
            Request::Revoke => {
                let export = self.exported.as_mut().and_then(|(_, export)| export.take());
                export.ok_or("nothing is exported")?.revoke(REVOKE).map_err(|(_, e)| e)?;
                Ok(Vec::new())
            }
            Request::ExportInChild => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["host", "--to-be-killed"]);
                if let Some(address) = options.pci {
                    command.args(["--pci", &address.to_string()]);
                }
                let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
                let output = child.stdout.take();
                self.child = Some(child);
                let mut line = String::new();
                BufReader::new(output.ok_or("a child without output")?).read_line(&mut line)?;
                Ok(unhex(line.trim()).ok_or("the child process did not export memory")?)
            }
            Request::KillChild => {
                self.kill()?;
                Ok(Vec::new())
            }
        }
    }

    fn kill(&mut self) -> Result<(), Error> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

fn export(engine: &DocaEngine, len: usize, rights: Access) -> Result<(Window, Export), dma_core::Error> {
    let window = engine.allocate_window(&MemoryRequest::new(len).exportable(rights))?;
    window.write_at(0, &sample(len))?;
    let export = window.export(rights)?;
    Ok((window, export))
}

/// Runs the child process, which exports memory until it is killed.
pub(crate) fn export_until_killed(options: &Options) -> Result<(), Error> {
    let engine = DocaEngine::open(&options.device())?;
    let (_window, export) = export(&engine, CHILD_LEN, Access::READ | Access::WRITE)?;
    let hex: String = export.descriptor().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{hex}");
    std::io::stdout().flush()?;
    // Standard input ends when the parent ends. This process then ends too.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let whole = rest.is_empty() && !pairs.is_empty();
    whole.then(|| pairs.iter().map(|&[a, b]| Some(digit(a)? << 4 | digit(b)?)).collect())?
}
