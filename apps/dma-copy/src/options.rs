//! The command line, and `--json`.

use std::ffi::OsString;
use std::io::Write;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};

use crate::protocol::{Checksum, Role};
use apps_shared::command::{self, parse_size};

/// The carrier of messages, as `--channel` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// TCP: an address `HOST:PORT`.
    Tcp(String),
    /// DOCA's comm channel: the name of the service.
    Comch(String),
}

impl FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => {
                // A port without a host means this machine.
                let (host, port) = address.rsplit_once(':').unwrap_or(("127.0.0.1", address));
                match port.parse::<NonZeroU16>() {
                    Ok(port) if !host.is_empty() => Ok(Self::Tcp(format!("{host}:{port}"))),
                    Err(_) if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => {
                        Err(format!("`{text}` has the port {port}; give a port from 1 to 65535"))
                    }
                    _ => Err(format!("`{text}` is not a channel; give tcp:PORT or tcp:HOST:PORT")),
                }
            }
            Some(("comch", name)) if !name.is_empty() => Ok(Self::Comch(name.to_owned())),
            _ => Err(format!(
                "`{text}` is not a channel; give unix:PATH, tcp:PORT, tcp:HOST:PORT or comch:NAME"
            )),
        }
    }
}

/// Copy a file between host and DPU by DMA.
///
/// Run it on both sides, in any order, each with its own FILE. The side whose file exists sends, and the
/// other one receives. The host exports a window of memory; the DPU imports it and controls the DMA in both
/// directions. Between two hosts, use --engine rdma, or --engine stream without RDMA. The copy appears under
/// its name only after it is complete and verified.
#[derive(Debug, Parser)]
#[command(
    name = "dma-copy",
    version,
    disable_version_flag = true,
    args_override_self = true,
    after_help = EXAMPLES
)]
pub(crate) struct Options {
    /// The file: if it exists, this side sends it; otherwise this side receives it. Repeat the option,
    /// equally often on both sides, to copy several files one after another
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// The DMA device, such as 03:00.0: the same as --engine doca:ADDRESS, and the device of a comch channel
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) pci_addr: Option<dma::PciAddress>,

    /// The host's function as the DPU sees it (its representor), for a comch channel; implies --role dpu
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) rep_pci: Option<dma::PciAddress>,

    /// The role of this side
    #[arg(long, value_name = "SIDE", value_enum)]
    role: Option<Role>,

    /// The engine that copies the bytes (DPU) or exports memory (host): auto, cpu, sim:seed=7, doca:03:00.0,
    /// rdma:mlx5_0, ... With stream on both sides, the channel carries the bytes, without DMA [default: auto]
    #[arg(short, long, value_name = "NAME")]
    engine: Option<String>,

    /// The channel for messages: unix:PATH, tcp:PORT or tcp:HOST:PORT (with --secret-file), comch:NAME
    /// [default: a socket of this user's]
    #[arg(short, long, value_name = "CHANNEL")]
    pub(crate) channel: Option<Carrier>,

    /// A file with a shared secret of at least 16 bytes, for tcp
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Maximum length of one DMA copy, from 4K to 1G; the device may allow less
    #[arg(long, value_name = "BYTES", default_value = "256K", allow_negative_numbers = true, value_parser = parse_chunk)]
    pub(crate) chunk: u64,

    /// Maximum number of DMA copies in flight, from 1 to 65536
    #[arg(long, value_name = "N", default_value = "8", allow_negative_numbers = true, value_parser = parse_depth)]
    pub(crate) depth: u32,

    /// Maximum memory to register on each side, from 8K to 16G; with --engine stream, maximum bytes in
    /// flight. The smaller value of the two sides is used
    #[arg(long, value_name = "BYTES", default_value = "4M", allow_negative_numbers = true, value_parser = parse_window)]
    pub(crate) window: u64,

    /// Checksum by which every block is verified before it is written; the stronger one of the two sides is
    /// used
    #[arg(long, value_name = "KIND", default_value = "xxh3", value_enum)]
    pub(crate) checksum: Checksum,

    /// Continue the partial copy of an earlier run, and keep the partial copy if this run fails
    #[arg(long)]
    pub(crate) resume: bool,

    /// Sync the copy to disk before it gets its name
    #[arg(long)]
    pub(crate) sync: bool,

    /// Seconds to wait for the other side's heartbeat; the timeout for this side's device and disk is half as
    /// long
    #[arg(long, value_name = "SECONDS", default_value = "30", allow_negative_numbers = true, value_parser = parse_timeout)]
    pub(crate) timeout: Duration,

    /// Hide the progress bar; if given twice, also hide the summary
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) quiet: u8,

    /// Log level on standard error: 10 off, 20 critical, 30 errors, 40 warnings, 50 information, 60 debug, 70
    /// trace
    #[arg(short, long, value_name = "LEVEL", default_value = "30", allow_negative_numbers = true, value_parser = parse_level)]
    pub(crate) log_level: u8,

    /// Log level of the SDK
    #[arg(long, value_name = "LEVEL", default_value = "30", allow_negative_numbers = true, value_parser = parse_level)]
    pub(crate) sdk_log_level: u8,

    /// Read options from a JSON file; options on the command line override them
    #[arg(short, long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print version
    #[arg(short, long, visible_short_alias = 'V', action = ArgAction::Version)]
    version: (),
}

/// The value of `--engine` that selects copies through the channel, without an engine.
const STREAM: &str = "stream";

const EXAMPLES: &str = "\
Examples, one command for each side, in two terminals or on two machines:
  dma-copy --role dpu  -f copy.img
  dma-copy --role host -f disk.img                       host to DPU, on one machine

  dma-copy -p 03:00.0 -r b1:00.0 -c comch:copy -f disk.img
  dma-copy --role host -p b1:00.0 -c comch:copy -f copy.img
                                                         DPU to host, on a BlueField and its host

  dma-copy --role dpu  -c tcp:0.0.0.0:4711 --secret-file key -f copy.img
  dma-copy --role host -c tcp:192.168.100.2:4711 --secret-file key -f disk.img
                                                         the same over a network between the two

  dma-copy --role dpu  -e rdma:mlx5_0 -c tcp:0.0.0.0:4711 --secret-file key -f copy.img
  dma-copy --role host -e rdma:mlx5_0 -c tcp:10.0.0.2:4711 --secret-file key -f disk.img
                                                         between two hosts by RDMA; with -e stream, without it

  dma-copy --role dpu  -f one.copy -f two.copy
  dma-copy --role host -f one.img -f two.img             two files in one session

Sizes are bytes, or with K, M or G (1024 each). A FILE for --json has the long names of options as keys:
  {\"doca_general_flags\": {\"log-level\": 60},
   \"doca_program_flags\": {\"file\": \"disk.img\", \"pci-addr\": \"03:00.0\", \"rep-pci\": \"b1:00.0\"}}
The summary goes to standard output, progress bar, log and errors to standard error. Exit status: 0 copied, 1 failed
(also if the copy is complete, but its summary cannot be written), 2 bad arguments, such as
an unknown engine, 130 interrupted.";

impl Options {
    /// Parses this process's arguments. If they are invalid, prints a message and exits.
    pub(crate) fn from_command_line() -> Self {
        Self::from_args(std::env::args_os().collect()).unwrap_or_else(|e| {
            // `exit` ignores a failure to print the help.
            if !e.use_stderr()
                && let Err(error) = e.print().and_then(|()| std::io::stdout().flush())
            {
                command::say("dma-copy", format!("cannot write to standard output: {error}"));
                std::process::exit(1);
            }
            if e.use_stderr() { e.exit() } else { std::process::exit(0) }
        })
    }

    fn from_args(args: Vec<OsString>) -> Result<Self, clap::Error> {
        let fail = |message: String| Self::command().error(clap::error::ErrorKind::InvalidValue, message);
        // The file's options come first, so that options of the command line override them, and clap checks
        // both.
        let mut all = args;
        let mut files_of_json = 0;
        if let Some(path) = json_of(&all) {
            let from_file = read_json(&path).map_err(fail)?;
            let is_file = |arg: &&OsString| arg.to_string_lossy().starts_with("--file=");
            files_of_json = from_file.iter().filter(is_file).count();
            let at = all.len().min(1);
            all.splice(at..at, from_file);
        }
        let mut options = Self::from_arg_matches(&Self::command().try_get_matches_from(all)?)?;
        if options.files.len() > files_of_json {
            options.files.drain(..files_of_json);
        }
        if options.role == Some(Role::Host) && options.rep_pci.is_some() {
            return Err(fail(
                "--rep-pci is only for the DPU, and --role is host; leave out one of them".to_owned(),
            ));
        }
        if options.role.is_none() && options.rep_pci.is_none() {
            // A wrong engine name is the user's first mistake, and would be reported first with a role.
            if !options.is_stream()
                && let Err(error) = dma::parse_untrusted(&options.engine())
                && command::is_bad_name(&error)
            {
                return Err(fail(error.to_string()));
            }
            return Err(fail(
                "the role of this side is unknown; give --role host or --role dpu (--rep-pci implies dpu)"
                    .to_owned(),
            ));
        }
        match (&options.channel, &options.secret_file) {
            (Some(Carrier::Tcp { .. }), None) => Err(fail(
                "a tcp channel needs --secret-file, with the same secret on both sides; create it with: head -c 32 /dev/urandom > key; chmod 600 key"
                    .to_owned(),
            )),
            (Some(Carrier::Tcp { .. }), _) | (_, None) => Ok(options),
            _ => Err(fail("--secret-file is only for tcp channels; leave it out".to_owned())),
        }
    }

    /// This side's role.
    pub(crate) fn role(&self) -> Role {
        self.role.unwrap_or(Role::Dpu)
    }

    /// True for `--engine stream`: blocks go through the channel.
    pub(crate) fn is_stream(&self) -> bool {
        self.engine.as_deref() == Some(STREAM)
    }

    /// True if the engine is an RDMA device, including one within wrappers, such as `meter+rdma:mlx5_0`.
    pub(crate) fn is_rdma(&self) -> bool {
        self.engine().split(':').next().and_then(|names| names.rsplit('+').next()) == Some("rdma")
    }

    /// The engine's name.
    pub(crate) fn engine(&self) -> String {
        match (&self.engine, self.pci_addr) {
            (Some(name), _) => name.clone(),
            (None, Some(address)) if self.sdk_log_level >= 50 => format!("doca:{address},log=debug"),
            (None, Some(address)) => format!("doca:{address}"),
            (None, None) => "auto".to_owned(),
        }
    }
}

/// Returns the value of `--json`, which is needed before the other options are complete.
fn json_of(args: &[OsString]) -> Option<PathBuf> {
    let mut command = Options::command().ignore_errors(true);
    command.try_get_matches_from_mut(args).ok()?.get_one("json").cloned()
}

/// Reads a JSON file, and returns its options as command line arguments.
fn read_json(path: &Path) -> Result<Vec<OsString>, String> {
    /// The groups of options in JSON files of DOCA's programs. Each group may contain any option.
    const GROUPS: [&str; 2] = ["doca_general_flags", "doca_program_flags"];
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("cannot read --json {shown}: {e}; check its name"))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| format!("--json {shown} is not valid JSON: {e}"))?;
    let groups = json.as_object().ok_or_else(|| format!("--json {shown}: the top level is not an object"))?;
    let command = Options::command();
    let known = |key: &str| {
        let mut options = command.get_arguments().filter(|_| !["json", "version"].contains(&key));
        options.find(|option| option.get_long() == Some(key)).map(|option| option.get_action().takes_values())
    };
    let mut args = Vec::new();
    for (group, options) in groups {
        if !GROUPS.contains(&group.as_str()) {
            return Err(format!(
                "--json {shown}: `{group}` is not a group of options; the groups are {}",
                GROUPS.join(" and ")
            ));
        }
        let options = options.as_object().ok_or_else(|| {
            format!(
                "--json {shown}: `{group}` is {options}; it must be an object with options by their long names"
            )
        })?;
        for (key, value) in options {
            let takes_value = known(key).ok_or_else(|| {
                format!("--json {shown}: there is no option `{key}`; --help lists the options")
            })?;
            match (takes_value, value) {
                (false, serde_json::Value::Bool(true)) => args.push(format!("--{key}").into()),
                (false, serde_json::Value::Bool(false)) => {}
                (true, serde_json::Value::Number(number)) => args.push(format!("--{key}={number}").into()),
                (true, serde_json::Value::String(text)) => args.push(format!("--{key}={text}").into()),
                (true, serde_json::Value::Array(texts))
                    if key == "file" && texts.iter().all(serde_json::Value::is_string) =>
                {
                    let texts = texts.iter().filter_map(serde_json::Value::as_str);
                    args.extend(texts.map(|text| OsString::from(format!("--file={text}"))));
                }
                (false, _) => {
                    return Err(format!(
                        "--json {shown}: `{key}` is {value}, but it is a switch; give true or false"
                    ));
                }
                (true, _) => {
                    return Err(format!("--json {shown}: `{key}` is {value}; give a text or a number"));
                }
            }
        }
    }
    Ok(args)
}

/// Parses a number of seconds.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is not a valid timeout; give 0.1 to 86400 seconds"))
}

fn parse_depth(text: &str) -> Result<u32, String> {
    text.parse::<u32>()
        .ok()
        .filter(|depth| (1..=65_536).contains(depth))
        .ok_or_else(|| format!("`{text}` is not a valid depth; give 1 to 65536"))
}

fn parse_level(text: &str) -> Result<u8, String> {
    text.parse::<u8>().ok().filter(|level| (10..=70).contains(level) && level % 10 == 0).ok_or_else(|| {
        format!("`{text}` is not a log level; give 10 (off), 20, 30 (errors), 40, 50, 60 or 70 (trace)")
    })
}

fn parse_chunk(text: &str) -> Result<u64, String> {
    parse_size(text, 4 << 10..=1 << 30, "4K to 1G")
}

fn parse_window(text: &str) -> Result<u64, String> {
    parse_size(text, 8 << 10..=16 << 30, "8K to 16G")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_engine_name_is_reported_before_a_missing_role() {
        for (engine, says) in [
            ("nosuch", "nosuch"),
            ("cpu", "--role host or --role dpu"),
            (STREAM, "--role host or --role dpu"),
        ] {
            let args = ["dma-copy", "-f", "copy.img", "--engine", engine].map(OsString::from);
            let error = Options::from_args(args.into()).expect_err("it is refused").to_string();
            assert!(error.contains(says), "{engine}: {error}");
            assert_eq!(error.contains("the role of this side"), engine != "nosuch", "{error}");
        }
    }

    #[test]
    fn a_json_file_is_found_in_each_notation() {
        for words in [
            "--json none",
            "--json=none",
            "-j none",
            "-jnone",
            "-j=none",
            "-qj none",
            "-qjnone",
            "-r 3b:00.0 -j none",
        ] {
            let all = ["dma-copy"].into_iter().chain(words.split(' ')).map(OsString::from).collect();
            let error = Options::from_args(all).expect_err("no file").to_string();
            assert!(error.contains("cannot read --json none"), "{words}: {error}");
        }
    }

    #[test]
    fn channels_have_a_port_that_exists() {
        let tcp = |address: &str| Ok(Carrier::Tcp(address.to_owned()));
        assert_eq!("tcp:4711".parse(), tcp("127.0.0.1:4711"));
        assert_eq!("tcp:[::1]:65535".parse(), tcp("[::1]:65535"));
        for (text, says) in [
            ("tcp:99999", "give a port from 1 to 65535"),
            ("tcp:host:65536", "give a port from 1 to 65535"),
            ("tcp:0", "give a port from 1 to 65535"),
            ("tcp:host:", "give tcp:PORT or tcp:HOST:PORT"),
            ("tcp::4711", "give tcp:PORT or tcp:HOST:PORT"),
            ("tcp:", "give tcp:PORT or tcp:HOST:PORT"),
            ("udp:1", "give unix:PATH"),
        ] {
            let error = text.parse::<Carrier>().expect_err(text);
            assert!(error.contains(text) && error.contains(says), "{error}");
        }
    }
}
