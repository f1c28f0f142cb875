//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use apps_shared::command::parse_size;
use lexopt::{Arg, Parser, ValueExt};

/// The options of a copy.
#[derive(Debug)]
pub(crate) struct Options {
    /// The file to copy.
    pub(crate) src: PathBuf,
    /// The name of the copy.
    pub(crate) dst: PathBuf,
    /// The engine's name.
    pub(crate) engine: String,
    /// Bytes per copy, from 4 KiB to 1 GiB.
    pub(crate) chunk: usize,
    /// Maximum number of copies in flight, from 1 to 65,536.
    pub(crate) depth: u32,
    /// `--verify`.
    pub(crate) verify: bool,
    /// `--direct`.
    pub(crate) direct: bool,
    /// `--share`.
    pub(crate) share: bool,
    /// `--sync`.
    pub(crate) sync: bool,
    /// Number of times that `--quiet` was given: 1 hides the progress bar, 2 also the summary.
    pub(crate) quiet: u8,
}

impl Options {
    /// Shortens the chunks to the length of the file, rounded up to 4 KiB, so that buffers are no longer than
    /// needed.
    pub(crate) fn for_length(mut self, len: u64) -> Self {
        let longest = len.clamp(1, *CHUNKS.end()).next_multiple_of(4 << 10) as usize;
        self.chunk = self.chunk.min(longest);
        self
    }
}

/// A command line.
#[derive(Debug)]
pub(crate) enum CommandLine {
    /// Copy a file.
    Copy(Options),
    /// Print this text, the help or the version.
    Print(&'static str),
}

const VERSION: &str = concat!("copy-file ", env!("CARGO_PKG_VERSION"));

/// The names of all options, from which errors choose the closest one.
const NAMES: [&str; 10] =
    ["chunk", "depth", "direct", "engine", "help", "quiet", "share", "sync", "verify", "version"];

const USAGE: &str = "usage: copy-file [OPTIONS] SRC DST; copy-file --help lists the options";

const HELP: &str = "\
Copy a file by DMA.

Reading SRC, moving the bytes and writing DST overlap. DST appears under its name, or replaces an existing DST, only
after the copy is complete. If the copy fails, an existing DST is unchanged. A new DST gets the permission bits of SRC
minus the umask. A replaced DST keeps its owner, group, permission bits and ACL as far as you may set them, and admits
no other user; its hard links keep the old content. Holes of sparse files stay holes. This program does not replace cp:
it copies one regular file, without directories, timestamps and extended attributes.

Usage: copy-file [OPTIONS] SRC DST

  SRC              the file to copy
  DST              the name of the copy: a file, not a directory

Options:
      --engine NAME    the engine that moves the bytes: auto, cpu, cpu:threads=2, sim:seed=7,profile=bluefield3, ...
                       [default: auto]
      --chunk BYTES    bytes per copy, from 4K to 1G [default: 256K]
      --depth N        maximum number of copies in flight; memory used is 2 x chunk x depth [default: 8]
      --verify         before DST gets its name, read the copy back and compare its XXH3 digest with that of SRC
      --direct         bypass the page cache (O_DIRECT), for files that are larger than memory or not read again. Uses
                       io_uring, or threads if the system forbids io_uring. Chunks that are not a multiple of 4K go
                       through the cache
      --share          let the file system copy, without an engine: DST shares SRC's extents if the file system supports
                       it (reflink); otherwise the kernel copies (copy_file_range)
      --sync           sync DST to disk before it gets its name
  -q, --quiet          hide the progress bar; if given twice, also hide the summary
  -h, --help           print this help
  -V, --version        print the version

Examples:
  copy-file disk.img backup.img                    the best engine that this machine has
  copy-file --verify --sync disk.img backup.img    verified, and safe on its disk
  copy-file --chunk 1M --depth 16 disk.img b.img   longer copies, more in flight
  copy-file --direct --chunk 1M disk.img b.img     without the page cache
  copy-file --share disk.img backup.img            in no time, where the file system shares extents
  copy-file --engine sim:seed=7,faults=corrupt@3 --verify disk.img b.img
                                                   a simulated device that corrupts its third copy

Sizes are bytes, or with K, M or G (1024 each). The summary goes to standard output, the progress bar and errors to
standard error. Exit status: 0 copied, 1 failed (also if the copy is complete, but its summary cannot be written),
2 bad arguments, such as an unknown engine, 130 interrupted.";

/// Parses the arguments after the program's name. The error names the argument and the remedy.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandLine, String> {
    let mut parser = Parser::from_args(arguments);
    let mut files = Vec::new();
    let (mut engine, mut chunk, mut depth) = (None, None, None);
    let (mut verify, mut direct, mut share, mut sync, mut quiet) = (false, false, false, false, 0_u8);
    while let Some(argument) = parser.next().map_err(describe)? {
        match argument {
            Arg::Value(file) => files.push(PathBuf::from(file)),
            Arg::Long("engine") => engine = Some(value(&mut parser, "--engine")?),
            Arg::Long("chunk") => {
                let bytes = parse_size(&value(&mut parser, "--chunk")?, CHUNKS, "4K to 1G");
                chunk = Some(bytes.map_err(|e| format!("--chunk: {e}"))? as usize);
            }
            Arg::Long("depth") => depth = Some(parse_depth(&value(&mut parser, "--depth")?)?),
            Arg::Long("verify") => verify = true,
            Arg::Long("direct") => direct = true,
            Arg::Long("share") => share = true,
            Arg::Long("sync") => sync = true,
            Arg::Short('q') | Arg::Long("quiet") => quiet = quiet.saturating_add(1),
            Arg::Short('h') | Arg::Long("help") => return Ok(CommandLine::Print(HELP)),
            Arg::Short('V') | Arg::Long("version") => return Ok(CommandLine::Print(VERSION)),
            Arg::Short(name) => return Err(format!("-{name} is not an option; {USAGE}")),
            Arg::Long(name) => return Err(unknown(name)),
        }
    }
    if share {
        let given = [
            ("--direct", direct),
            ("--verify", verify),
            ("--engine", engine.is_some()),
            ("--chunk", chunk.is_some()),
            ("--depth", depth.is_some()),
        ];
        if let Some((other, _)) = given.into_iter().find(|&(_, given)| given) {
            return Err(format!(
                "--share cannot be used with {other}: the file system copies; remove one of them"
            ));
        }
    }
    let [src, dst] = files.try_into().map_err(|files: Vec<PathBuf>| match files.len() {
        0 => format!("SRC and DST are missing; {USAGE}"),
        1 => format!("DST is missing: name the copy of {}; {USAGE}", files[0].display()),
        _ => format!("{} is a third file, but only one file can be copied; {USAGE}", files[2].display()),
    })?;
    for (name, path) in [("SRC", &src), ("DST", &dst)] {
        if path.as_os_str().is_empty() {
            return Err(format!("{name} is empty; name a file; {USAGE}"));
        }
    }
    Ok(CommandLine::Copy(Options {
        src,
        dst,
        engine: engine.unwrap_or_else(|| "auto".to_owned()),
        chunk: chunk.unwrap_or(256 << 10),
        depth: depth.unwrap_or(8),
        verify,
        direct,
        share,
        sync,
        quiet,
    }))
}

/// Valid bytes per copy. Below 4 KiB, system calls dominate the cost.
const CHUNKS: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;

fn parse_depth(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|depth| (1..=65_536).contains(depth))
        .ok_or_else(|| format!("--depth: `{text}` is not valid; give a number from 1 to 65536"))
}

/// Returns the value of the option `name`, which the parser has just returned.
fn value(parser: &mut Parser, name: &str) -> Result<String, String> {
    let value = parser.value().map_err(|_| format!("{name} needs a value; {USAGE}"))?;
    value.string().map_err(|_| format!("the value of {name} is not valid UTF-8"))
}

fn unknown(name: &str) -> String {
    match dma::contract::closest_name(name, &NAMES) {
        Some(closest) => format!("--{name} is not an option; did you mean --{closest}? {USAGE}"),
        None => format!("--{name} is not an option; {USAGE}"),
    }
}

/// Describes an error of the parser.
fn describe(error: lexopt::Error) -> String {
    match error {
        lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value; {USAGE}"),
        error => format!("{error}; {USAGE}"),
    }
}
