//! Benchmarks DMA engines side by side.

use clap::{Parser, Subcommand};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use dma::{Capabilities, Discovered, EngineInfo};

#[derive(Debug, Parser)]
#[command(
    name = "dma-bench",
    version,
    about = "Benchmarks DMA engines side by side",
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the engines of this machine, with limits and capabilities, and why others cannot be used.
    List,
}

fn main() {
    match Arguments::parse().command {
        Command::List => println!("{}", list(dma::discover())),
    }
}

fn list(found: Vec<Discovered>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic).set_header([
        "engine",
        "device",
        "capabilities",
        "longest copy",
        "segments",
        "depth",
        "queues",
    ]);
    for Discovered { name, info, .. } in found {
        match info {
            Ok(info) => table.add_row(row(&name, &info)),
            Err(e) => table.add_row([name, format!("not usable: {e}")]),
        };
    }
    table
}

fn row(name: &str, info: &EngineInfo) -> [String; 7] {
    let limits = &info.limits;
    let device = match &info.model {
        Some(model) => format!("{} (a model: {model})", info.device),
        None => info.device.clone(),
    };
    [
        name.to_owned(),
        device,
        capabilities(info.capabilities),
        if limits.max_transfer == u64::MAX { "any".to_owned() } else { limits.max_transfer.to_string() },
        limits.max_segments.to_string(),
        limits.max_queue_depth.to_string(),
        limits.max_queues.map_or("any".to_owned(), |n| n.to_string()),
    ]
}

fn capabilities(of: Capabilities) -> String {
    let names: Vec<_> = of.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect();
    format!("copy {}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_list_has_every_engine() {
        let table = list(dma::discover()).to_string();
        for name in ["cpu", "sim", "doca", "ioat", "not usable"] {
            assert!(table.contains(name), "{table}");
        }
    }
}
