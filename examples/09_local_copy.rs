//! Copies a text from one buffer to another by DMA.
//!
//! `cargo run --example 09_local_copy -- --txt "any text"`, with `--pci 03:00.0` on a BlueField.

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use dma::prelude::*;

mod common;

/// Copies a text from one buffer to another by DMA
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    device: common::Device,
    /// The text
    #[arg(short, long, default_value = "This is a sample piece of text", value_parser = NonEmptyStringValueParser::new())]
    txt: String,
}

fn main() -> std::process::ExitCode {
    common::exit(run(&Options::parse()))
}

fn run(options: &Options) -> dma::Result<()> {
    let engine = options.device.open()?;
    let queue = engine.open_queue(&QueueOptions::new())?;

    let mut src = engine.allocate(options.txt.len())?;
    src.copy_from_slice(options.txt.as_bytes());
    let dst = engine.allocate(options.txt.len())?;
    let (_, dst) = queue.copy(src, dst)?.wait()?;

    println!("copied by {}", common::by(&*engine));
    println!("{}", String::from_utf8_lossy(&dst));
    Ok(())
}
