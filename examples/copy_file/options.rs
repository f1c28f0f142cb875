//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::command::parse_size;

/// Copy a file by DMA.
///
/// Reading SRC, moving the bytes and writing DST overlap. DST appears under its name, or replaces an
/// existing DST, only after the copy is complete. If the copy fails, an existing DST is unchanged. DST gets
/// the permission bits that cp would give it, and holes of sparse files stay holes. This program does not
/// replace cp: it copies one regular file, without directories, owner, timestamps, extended attributes and
/// ACLs.
#[derive(Debug, Parser)]
#[command(name = "copy_file", version, after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The file to copy
    pub(crate) src: PathBuf,

    /// The name of the copy: a file, not a directory
    pub(crate) dst: PathBuf,

    /// The engine that moves the bytes: auto, cpu, cpu:threads=2, sim:seed=7,profile=bluefield3, ...
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) engine: String,

    /// Bytes per copy, from 4K to 1G
    #[arg(long, value_name = "BYTES", default_value = "256K", value_parser = parse_chunk)]
    pub(crate) chunk: usize,

    /// Maximum number of copies in flight; memory used is 2 x chunk x depth
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) depth: u32,

    /// Before DST gets its name, read the copy back and compare its BLAKE3 digest with that of SRC
    #[arg(long)]
    pub(crate) verify: bool,

    /// Bypass the page cache (O_DIRECT), for files that are larger than memory or not read again. Uses
    /// io_uring, or threads if the system forbids io_uring. Chunks that are not a multiple of 4K go through
    /// the cache
    #[arg(long)]
    pub(crate) direct: bool,

    /// Let the file system copy, without an engine: DST shares SRC's extents if the file system supports it
    /// (reflink); otherwise the kernel copies (copy_file_range)
    #[arg(long, conflicts_with_all = ["direct", "verify", "engine", "chunk", "depth"])]
    pub(crate) share: bool,

    /// Sync DST to disk before it gets its name
    #[arg(long)]
    pub(crate) sync: bool,

    /// Hide the progress bar; if given twice, also hide the summary
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) quiet: u8,
}

const EXAMPLES: &str = "\
Examples:
  copy_file disk.img backup.img                    the best engine that this machine has
  copy_file --verify --sync disk.img backup.img    verified, and safe on its disk
  copy_file --chunk 1M --depth 16 disk.img b.img   longer copies, more in flight
  copy_file --direct --chunk 1M disk.img b.img     without the page cache
  copy_file --share disk.img backup.img            in no time, where the file system shares extents
  copy_file --engine sim:seed=7,faults=corrupt@3 --verify disk.img b.img
                                                   a simulated device that corrupts its third copy

Sizes are bytes, or with K, M or G (1024 each). The summary goes to standard output, the progress bar and errors to
standard error. Exit status: 0 copied, 1 failed, 2 bad arguments, 130 interrupted.";

/// Valid bytes per copy. Below 4 KiB, system calls dominate the cost.
fn parse_chunk(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text, 4 << 10..=1 << 30, "4K to 1G")?;
    usize::try_from(bytes).map_err(|e| e.to_string())
}
