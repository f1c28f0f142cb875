//! The stand-in's I/OAT functions as PCI devices of QEMU, so that the driver of a guest's kernel drives them.
//!
//! ```text
//! pci_proxy COMMAND ARGUMENT...
//! ```
//!
//! Runs the command, which starts QEMU with the machine `q35` and shared memory (`memory-backend-memfd`,
//! `share=on`). An argument `{}` is replaced by QEMU's options for the devices, one device for each function
//! of the configuration (`SPDK_EMU`), with its device number. Exits with the command's status.
//!
//! Devices reach the guest's memory below 4 GiB, except the first 2 MiB, which the guest's kernel must not
//! use for DMA: `memmap=1M$1M`. Interrupts are not modelled, so Linux's `ioatdma` detects completions by its
//! timer.

mod function;
mod memory;
mod wire;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Makes the two ends of a device's socket: the proxy's end, and QEMU's end, which child processes inherit.
fn connection() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    Ok((ours.into(), theirs))
}

fn run(command: &str, arguments: &[String]) -> io::Result<ExitCode> {
    let functions = function::take_all()?;
    let mut options = Vec::new();
    let mut ends = Vec::new();
    let mut connections = Vec::new();
    for (number, function) in functions.into_iter().enumerate() {
        let (ours, theirs) = connection()?;
        let (fd, slot) = (theirs.as_raw_fd(), function.slot());
        options.push(format!("-device x-pci-proxy-dev,id=p{number},fd={fd},addr={slot}"));
        connections.push((function, ours));
        ends.push(theirs);
    }
    let options = options.join(" ");
    let arguments = arguments.iter().map(|argument| if argument == "{}" { &options } else { argument });
    let mut child = Command::new(command).args(arguments).spawn()?;
    // Close QEMU's ends here, so that each connection ends when the last process of the command ends.
    drop(ends);
    let served = std::thread::scope(|scope| {
        let serve = |(function, stream)| scope.spawn(move || wire::serve(function, &stream));
        let threads: Vec<_> = connections.into_iter().map(serve).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| io::Error::other("a panic")).flatten());
        ended.collect::<Vec<_>>().into_iter().collect::<io::Result<()>>()
    });
    let status = child.wait()?;
    served?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [command, arguments @ ..] = &*arguments else {
        eprintln!("usage: pci_proxy COMMAND ARGUMENT...    {{}} becomes QEMU's options for the devices");
        return ExitCode::from(2);
    };
    run(command, arguments).unwrap_or_else(|error| {
        eprintln!("pci_proxy: {error}");
        ExitCode::FAILURE
    })
}
