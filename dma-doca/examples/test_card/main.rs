//! Tests a BlueField from both of its sides: this program runs on the DPU and on the host.
//!
//! Start it on the DPU and on the host, in any order:
//!
//! ```text
//! cargo run --release -p dma-doca --example test_card -- dpu --pci 03:00.0 --rep 3b:00.0
//! cargo run --release -p dma-doca --example test_card -- host --pci 3b:00.0
//! ```
//!
//! Each side first runs the conformance suite on its own device. Then the DPU imports memory of the host and
//! copies both ways, then the host imports memory of the DPU, if its device can. The DPU prints the report of
//! both sides. The exit status is 1 if a test failed, 2 if the tests could not run.
//!
//! - `main.rs`: options, and the order of the tests
//! - `report.rs`: results
//! - `one_sided.rs`: the suite, on a device that may not reach memory that its own side exported
//! - `channel.rs`: messages, over the comm channel or TCP
//! - `exporter.rs`: the side whose memory is copied
//! - `importer.rs`: the side that copies, with the tests

mod channel;
mod exporter;
mod importer;
mod one_sided;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use dma_core::{DmaEngine, PciAddress};
use dma_doca::{DocaEngine, DocaOptions};

use channel::Channel;
use report::Report;

/// Any error, which ends the program.
type Error = Box<dyn std::error::Error>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// The card's own processor
    Dpu,
    /// The machine that the card is in
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tests {
    All,
    /// Tests of this side's device alone
    Alone,
    /// Tests of both sides together
    Pair,
}

/// Tests a BlueField from both of its sides
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Side of the card that this program runs on
    #[arg(value_enum)]
    side: Side,
    /// PCI address of the device on this side [default: the first device that has DMA]
    #[arg(long, value_name = "ADDRESS")]
    pci: Option<PciAddress>,
    /// On the DPU, for the comm channel: the PCI address of the host's function, as `dma-bench list` shows it
    #[arg(long, value_name = "ADDRESS")]
    rep: Option<PciAddress>,
    /// Use TCP instead of the comm channel: the address that the DPU listens on and the host connects to
    #[arg(long, value_name = "HOST:PORT", requires = "secret_file")]
    tcp: Option<String>,
    /// For TCP: a file of 16 or more random bytes, the same on both sides
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Time limit for the start of the other side, and for each of its answers
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Tests to run
    #[arg(long, value_enum, default_value_t = Tests::All)]
    tests: Tests,
    /// Export memory, print the descriptor, and wait to be killed
    #[arg(long, hide = true)]
    to_be_killed: bool,
}

impl Options {
    fn device(&self) -> DocaOptions {
        let options = DocaOptions::new();
        match self.pci {
            Some(address) => options.with_address(address),
            None => options,
        }
    }

    const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("test_card: {e}");
            ExitCode::from(2)
        }
    }
}

/// Returns true if all tests passed.
fn run(options: &Options) -> Result<bool, Error> {
    if options.to_be_killed {
        exporter::export_until_killed(options)?;
        return Ok(true);
    }
    let engine = DocaEngine::open(&options.device())?;
    let side = if options.side == Side::Dpu { "DPU" } else { "host" };
    let mut report = Report::new(side);
    let info = engine.info();
    report.note(format!("{} on {}, {}", info.version, info.device, std::env::consts::ARCH));
    report.note(format!("{}, {:?}", info.capabilities, info.limits));
    let own = one_sided::copies_own_exports(&engine);
    report.note(match &own {
        Ok(()) => format!("the {side} copies memory that it exported itself"),
        Err(why) => format!("the {side} does not copy memory that it exported itself: {why}"),
    });
    if options.tests != Tests::Pair {
        one_sided::suite(&engine, own.is_ok(), &mut report);
    }
    if options.tests == Tests::Alone {
        return Ok(report.passed());
    }
    let mut channel = Channel::open(options)?;
    match options.side {
        Side::Dpu => {
            importer::test(&engine, &mut channel, &mut report)?;
            exporter::serve(&engine, options, &mut channel)?;
            let theirs = Report::receive(&mut channel)?;
            println!("\n----- report\n{report}{theirs}----- end of the report");
            Ok(report.passed() && theirs.passed())
        }
        Side::Host => {
            exporter::serve(&engine, options, &mut channel)?;
            importer::test(&engine, &mut channel, &mut report)?;
            report.send(&mut channel)?;
            Ok(report.passed())
        }
    }
}
