//! The machine that figures were measured on.

use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dma::NumaNodes;

/// Properties of the machine that influence copies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// The number of CPUs this process may use.
    pub cpus: usize,
    /// Flags of the instruction set that influence copies: `erms`, `fsrm`, `avx512f`, `movdir64b` and so on.
    pub flags: Vec<String>,
    /// The caches of one CPU: level, type, and size as the kernel reports it.
    pub caches: Vec<String>,
    /// The NUMA nodes with their CPUs, such as `node0 0-31`; empty if the kernel reports none.
    pub nodes: Vec<String>,
    /// Bytes of main memory.
    pub memory: u64,
    /// True under a hypervisor.
    pub virtual_machine: bool,
    /// The operating system.
    pub os: String,
    /// The kernel's release.
    pub kernel: String,
    /// The C library, whose `memcpy` is the baseline.
    pub libc: String,
    /// The architecture, such as `x86_64`.
    pub arch: String,
    /// The frequency governor, if the machine has one.
    pub governor: Option<String>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Load average over the minute before the run.
    pub load: Option<f64>,
}

/// Flags that are recorded: the flags of x86 and aarch64 that decide how memory is copied.
const FLAGS: &str =
    "sse2 avx avx2 avx512f avx512vl erms fsrm movdiri movdir64b enqcmd clwb asimd sve mops atomics";

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|line| !line.is_empty())
}

impl Machine {
    /// Returns the properties of this machine.
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |names: &[&str]| {
            cpuinfo.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                names.contains(&name.trim()).then(|| value.trim().to_owned())
            })
        };
        let flags = field(&["flags", "Features"]).unwrap_or_default();
        let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
        let memory = line("/proc/meminfo").and_then(|text| {
            let kib = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
            kib.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
        });
        let uname = rustix::system::uname();
        let huge_pages = line("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()));
        Self {
            cpu: field(&["model name", "Model", "CPU part"]).unwrap_or_else(|| "unknown".to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            flags: FLAGS.split(' ').filter(|f| has(f)).map(str::to_owned).collect(),
            caches: caches(),
            nodes: nodes(),
            memory: memory.unwrap_or_default() << 10,
            virtual_machine: has("hypervisor"),
            os: os(),
            kernel: uname.release().to_string_lossy().into_owned(),
            libc: libc(),
            arch: uname.machine().to_string_lossy().into_owned(),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            huge_pages,
            load: line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }

    /// Returns the size of the last-level cache in bytes; a default if the kernel reports no cache.
    pub fn last_cache(&self) -> u64 {
        let size = |text: &String| crate::units::size(text.rsplit(' ').next()?).ok();
        self.caches.iter().filter_map(size).max().unwrap_or(32 << 20)
    }
}

/// Returns the NUMA nodes of this machine, with their CPUs: `node0 0-31`.
fn nodes() -> Vec<String> {
    let nodes = NumaNodes::of_system();
    nodes.numbers().map(|node| format!("node{node} {}", nodes.core_list(node).unwrap_or_default())).collect()
}

fn caches() -> Vec<String> {
    (0..8)
        .filter_map(|index| {
            let read = |what: &str| line(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}"));
            let kind = match read("type")?.as_str() {
                "Data" => "d",
                "Instruction" => "i",
                _ => "",
            };
            Some(format!("L{}{kind} {}", read("level")?, read("size")?))
        })
        .collect()
}

fn os() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| std::env::consts::OS.to_owned(), |name| name.trim_matches('"').to_owned())
}

fn libc() -> String {
    let output = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Returns three quarters of the available memory in bytes, or `u64::MAX` if the system does not report it.
pub(crate) fn available_memory() -> u64 {
    dma::process::available_memory().map_or(u64::MAX, |bytes| bytes / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::here();
        assert!(machine.cpus > 0 && machine.memory > 0, "{machine:?}");
        assert!(!machine.kernel.is_empty() && !machine.arch.is_empty());
        assert!(machine.last_cache() >= 1 << 15);
    }
}
