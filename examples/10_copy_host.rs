//! The host's side of a copy from host to DPU: exports a buffer with a text, and writes two files for the
//! DPU's side, `11_copy_dpu`.
//!
//! `cargo run --example 10_copy_host -- --txt "any text"`, and in another terminal `cargo run --example
//! 11_copy_dpu`.
//!
//! `--export` is the file with the export descriptor. `--buffer` is the file with the text's address and
//! length, decimal numbers on two lines. With `--raw`, the export descriptor is in the SDK's own format,
//! for peers that do not use this library.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use dma::prelude::*;
use dma::process::OutputFile;

mod common;

/// Exports a buffer with a text until the peer has copied it
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    device: common::Device,
    /// The text
    #[arg(short, long, default_value = "This is a sample piece of text", value_parser = NonEmptyStringValueParser::new())]
    txt: String,
    #[command(flatten)]
    files: common::Files,
    /// Write the descriptor in the SDK's own format, without this library's header
    #[arg(long)]
    raw: bool,
}

fn main() -> std::process::ExitCode {
    common::exit(run(&Options::parse()))
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let text = options.txt.as_bytes();
    let engine = options.device.open()?;
    // A window is accessed by copies, never by reference, because a peer also accesses it.
    let export = |rights| {
        let window = engine.allocate_window(&MemoryRequest::new(text.len()).exportable(rights))?;
        window.write_at(0, text)?;
        window.export(rights)
    };
    let export = match export(Access::READ) {
        // DOCA 1.5 cannot grant only reading, so grant reading and writing.
        Err(e) if e.kind() == ErrorKind::Unsupported => export(Access::READ | Access::WRITE)?,
        exported => exported?,
    };

    let descriptor = export.descriptor();
    // On a BlueField, `address` is the buffer's address; on other engines, it is the offset in the export.
    let (address, blob) = match descriptor.backend() {
        "doca" => dma::doca::split_native(descriptor.native())?,
        _ => (0, descriptor.native()),
    };
    let common::Files { export: export_file, buffer: buffer_file } = &options.files;
    let address_and_length = format!("{address}\n{}\n", descriptor.len());
    let exported = if options.raw { blob.to_vec() } else { descriptor.to_bytes() };
    // The export descriptor is written last, because the peer may wait for its file.
    write([(buffer_file, address_and_length.as_bytes()), (export_file, &exported)])?;

    println!(
        "exported {} bytes by {}; copy the files {} and {} to the DPU",
        text.len(),
        common::by(&*engine),
        export_file.display(),
        buffer_file.display()
    );
    println!(
        "press Enter when the DPU has copied the text; to copy on this machine: cargo run --example 11_copy_dpu -- --export {} --buffer {}",
        export_file.display(),
        buffer_file.display()
    );
    std::io::stdin().read_line(&mut String::new())?;
    export.revoke(Duration::from_secs(60)).map_err(|(_, e)| e)?;
    println!("revoked");
    Ok(())
}

/// Writes files that only their owner can read. No file gets its name before all files are written.
fn write(files: [(&Path, &[u8]); 2]) -> dma::Result<()> {
    let mut written = Vec::new();
    for (path, bytes) in files {
        let explain = |e| Error::of_output_file(path, e);
        let mut file = OutputFile::create_private(path).map_err(explain)?;
        file.write_all(bytes).map_err(explain)?;
        written.push((path, file));
    }
    written.into_iter().try_for_each(|(path, file)| file.finish().map_err(|e| Error::of_output_file(path, e)))
}
