//! The DPU's side of a copy from host to DPU: reads the two files that `10_copy_host` wrote, and copies the
//! text from the host's memory by DMA.
//!
//! `cargo run --example 11_copy_dpu`, while `cargo run --example 10_copy_host` waits in another terminal.
//!
//! On DOCA, a descriptor without this library's header is taken to be in the SDK's own format, as C
//! programs write it.

use std::io::Read;
use std::path::Path;

use clap::Parser;
use dma::ExportDescriptor;
use dma::prelude::*;

mod common;

/// Maximum length of the text in bytes, because the length comes from a file.
const LONGEST: u64 = 1 << 30;

/// Copies a text from a host's memory, which two files describe
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    device: common::Device,
    #[command(flatten)]
    files: common::Files,
}

fn main() -> std::process::ExitCode {
    common::exit(run(&Options::parse()))
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let engine = options.device.open()?;
    let (address, len) = buffer(&options.files.buffer)?;
    let descriptor = descriptor(&options.files.export, engine.info().backend, address, len)?;
    let window = engine.import(&descriptor)?;

    // The buffer must lie within the exported range.
    let first = match descriptor.backend() {
        "doca" => dma::doca::split_native(descriptor.native())?.0,
        _ => 0,
    };
    let start = address.checked_sub(first).and_then(|start| usize::try_from(start).ok());
    let range = start.and_then(|start| Some(start..start.checked_add(usize::try_from(len).ok()?)?));
    let range = range.filter(|range| range.end as u64 <= descriptor.len()).ok_or_else(|| {
        format!(
            "{} says {len} bytes at {address:#x}, which are not within the {} bytes exported at {first:#x}; use the two files of one export",
            options.files.buffer.display(),
            descriptor.len(),
        )
    })?;

    let queue = engine.open_queue(&QueueOptions::new())?;
    let (_, text) = queue.copy(window.slice(range), engine.allocate(len as usize)?)?.wait()?;
    println!("copied from a host's memory by {}", common::by(&*engine));
    println!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

/// Reads the address and length of a buffer file.
fn buffer(path: &Path) -> Result<(u64, u64), String> {
    let bytes = read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut numbers = text.lines().map(|line| line.trim().parse::<u64>());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(address)), Some(Ok(len)), None) if (1..=LONGEST).contains(&len) => Ok((address, len)),
        _ => Err(format!(
            "{} is not a buffer file: it should contain an address on the first line and a length of 1 to {LONGEST} on the second",
            path.display()
        )),
    }
}

/// Reads the export descriptor, with or without this library's header.
fn descriptor(
    path: &Path,
    backend: &str,
    address: u64,
    len: u64,
) -> Result<ExportDescriptor, Box<dyn std::error::Error>> {
    let bytes = read(path)?;
    if bytes.is_empty() {
        return Err(format!("{} is empty; bring the file that 10_copy_host wrote", path.display()).into());
    }
    if bytes.starts_with(b"DMAX") || backend != "doca" {
        return Ok(ExportDescriptor::from_bytes(&bytes).map_err(|e| format!("{}: {e}", path.display()))?);
    }
    Ok(ExportDescriptor::new(backend, Access::READ, len, &dma::doca::join_native(address, &bytes))?)
}

/// Reads a file, up to the maximum length of a descriptor.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(ExportDescriptor::MAX_ENCODED as u64 + 1).read_to_end(&mut bytes))
        .map_err(|e| {
            format!(
                "read {}: {e}; start 10_copy_host, leave it running, and bring its two files here",
                path.display()
            )
        })?;
    Ok(bytes)
}
