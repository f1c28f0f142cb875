//! The host's side of a copy from host to DPU: exports a buffer with a text, and tells of it in two files, to be taken to the other side by
//! any means. `11_copy_dpu` is the other side. On one machine, two terminals:
//!
//! `cargo run --example 10_copy_host -- --export export.bin --buffer buffer.txt --txt "any text"`
//!
//! `--export` holds the export descriptor, `--buffer` the text's address and length, each a decimal number on a line of its own. With `--raw`
//! the descriptor is as the SDK made it, for peers which are not written with this library.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use dma::prelude::*;

mod common;

/// Exports a buffer with a text, until the peer has copied it
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    device: common::Device,
    /// The text
    #[arg(short, long, default_value = "This is a sample piece of text", value_parser = NonEmptyStringValueParser::new())]
    txt: String,
    /// Where to write the export descriptor
    #[arg(long, value_name = "FILE")]
    export: PathBuf,
    /// Where to write the buffer's address and length
    #[arg(long, value_name = "FILE")]
    buffer: PathBuf,
    /// Write the descriptor as the SDK made it, without this library's frame
    #[arg(long)]
    raw: bool,
}

fn main() -> std::process::ExitCode {
    common::exit(run(&Options::parse()))
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let text = options.txt.as_bytes();
    let engine = options.device.open()?;
    // Memory that a peer reads is reached by copy, never by reference.
    let window = engine.allocate_window(&MemoryRequest::new(text.len()).exportable(Access::READ))?;
    window.write_at(0, text)?;
    let export = window.export(Access::READ)?;

    let descriptor = export.descriptor();
    let address_and_length = format!("{}\n{}\n", descriptor.address(), descriptor.len());
    write(&options.buffer, address_and_length.as_bytes())?;
    // Last, since the peer may be waiting for it.
    let exported = match options.raw {
        true => write(&options.export, descriptor.native()).map_err(dma::Error::from),
        false => descriptor.save(&options.export),
    };
    if let Err(e) = exported {
        let _ = std::fs::remove_file(&options.buffer);
        return Err(e.into());
    }

    println!(
        "exported {} bytes by {}; take {} and {} to the DPU",
        text.len(),
        common::by(&*engine),
        options.export.display(),
        options.buffer.display()
    );
    println!("press Enter when it has copied them");
    std::io::stdin().read_line(&mut String::new())?;
    export.revoke(Duration::from_secs(5)).map_err(|(_, e)| e)?;
    println!("revoked");
    Ok(())
}

/// Writes a file that only its owner can read, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let named = |e: std::io::Error| std::io::Error::new(e.kind(), format!("write {}: {e}", path.display()));
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(named)?;
    file.write_all(bytes).map_err(named)?;
    file.persist(path).map_err(|e| named(e.error))?;
    Ok(())
}
