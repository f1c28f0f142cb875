//! Messages of QEMU's `x-pci-proxy-dev`: `include/hw/remote/mpqemu-link.h` of QEMU 7.2.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::function::Function;
use crate::memory;

/// Size of a header in bytes: the command, padding, and the size of the content.
const HEADER: usize = 16;
/// Maximum number of memory sections in a message, each with its file.
const SECTIONS: usize = 8;
/// Maximum size of the content in bytes: address, size and offset for each section.
const LONGEST: usize = SECTIONS * 3 * 8;

const SYNC_SYSMEM: i32 = 0;
const RET: i32 = 1;
const PCI_CFGWRITE: i32 = 2;
const PCI_CFGREAD: i32 = 3;
const BAR_WRITE: i32 = 4;
const BAR_READ: i32 = 5;
const SET_IRQFD: i32 = 6;
const DEVICE_RESET: i32 = 7;

/// The content of a message, whose fields are read in place.
struct Content([u8; LONGEST]);

impl Content {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|i| self.0[at + i]))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }
}

/// Reads a header, and the files that were sent with it. Returns `None` if QEMU has ended.
fn header(mut stream: &UnixStream) -> io::Result<Option<(i32, usize, Vec<OwnedFd>)>> {
    let mut bytes = [0; HEADER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SECTIONS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?.bytes;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = rights.flatten().collect();
    if got == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut bytes[got..])?;
    let command = i32::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    let size = u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]));
    let size = usize::try_from(size).ok().filter(|size| *size <= LONGEST);
    let size = size
        .ok_or_else(|| io::Error::other(format!("command {command} is too long: another QEMU than 7.2?")))?;
    Ok(Some((command, size, files)))
}

fn answer(mut stream: &UnixStream, value: Option<u64>) -> io::Result<()> {
    let size = value.map_or(0, |_| 8_u64);
    let mut message = [i64::from(RET).to_le_bytes(), size.to_le_bytes()].concat();
    message.extend(value.iter().flat_map(|value| value.to_le_bytes()));
    stream.write_all(&message)
}

/// Answers QEMU's messages for a function until QEMU ends.
pub(crate) fn serve(mut function: Function, mut stream: &UnixStream) -> io::Result<()> {
    loop {
        let next = match header(stream) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            next => next?,
        };
        let Some((command, size, files)) = next else { return Ok(()) };
        let mut content = Content([0; LONGEST]);
        stream.read_exact(&mut content.0[..size])?;
        let content = content;
        let value = match command {
            SYNC_SYSMEM => {
                for (i, file) in files.iter().enumerate() {
                    let [start, len, offset] = [0, 1, 2].map(|of| content.u64((of * SECTIONS + i) * 8));
                    memory::map(start, len, file, offset)?;
                }
                continue;
            }
            SET_IRQFD => continue,
            PCI_CFGREAD => function.read_config(content.u32(0), content.u32(8)),
            PCI_CFGWRITE => {
                function.write_config(content.u32(0), content.u32(8), content.u32(4));
                0
            }
            BAR_READ => function.read(content.u64(0), content.u32(16)),
            BAR_WRITE => {
                function.write(content.u64(0), content.u32(16), content.u64(8));
                0
            }
            DEVICE_RESET => {
                function.reset();
                answer(stream, None)?;
                continue;
            }
            other => return Err(io::Error::other(format!("QEMU sent the unknown command {other}"))),
        };
        answer(stream, Some(value))?;
    }
}
