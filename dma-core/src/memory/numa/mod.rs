//! NUMA nodes and cores, as Linux describes them, and memory policies.

mod policy;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{Error, ErrorKind, Result};
pub(crate) use policy::{bind, with_policy};

/// Linux's directory of NUMA nodes.
const NODES: &str = "/sys/devices/system/node";
/// Linux's list of the cores that are online.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The NUMA nodes of a machine. If the kernel reports none, node 0 has all cores and all memory.
#[derive(Clone, Debug)]
pub struct NumaNodes {
    dir: PathBuf,
    /// The list of each node's cores, in the system's format.
    nodes: BTreeMap<u32, String>,
}

impl NumaNodes {
    /// Reads the nodes of this machine. This takes some tens of microseconds.
    #[must_use]
    pub fn of_system() -> Self {
        Self::read(NODES)
    }

    /// Reads a directory with the layout of Linux's `/sys/devices/system/node`: `nodeN/cpulist`,
    /// `nodeN/meminfo`. If it contains no node, the result is node 0 with all cores and all memory.
    #[must_use]
    pub fn read(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref().to_path_buf();
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut nodes: BTreeMap<u32, String> = entries
            .filter_map(|entry| {
                let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
                let cores = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
                Some((node, cores.trim().to_owned()))
            })
            .collect();
        if nodes.is_empty() {
            let cores = std::fs::read_to_string(ONLINE).map(|list| list.trim().to_owned());
            let all = || format!("0-{}", std::thread::available_parallelism().map_or(1, usize::from) - 1);
            nodes.insert(0, cores.unwrap_or_else(|_| all()));
        }
        Self { dir, nodes }
    }

    /// Returns the numbers of the nodes in ascending order. There is at least one node.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = u32> {
        self.nodes.keys().copied()
    }

    /// Returns the list of a node's cores in the system's format, such as `0-3,8`; an empty text if the node
    /// has no cores.
    ///
    /// # Errors
    ///
    /// `NotFound` for a node that does not exist. The hint names the existing nodes.
    pub fn core_list(&self, node: u32) -> Result<&str> {
        self.nodes.get(&node).map(String::as_str).ok_or_else(|| {
            let known: Vec<u32> = self.numbers().collect();
            Error::new(ErrorKind::NotFound, format!("there is no NUMA node {node}"))
                .with_hint(format!("this machine has the nodes {known:?}"))
        })
    }

    /// Returns the numbers of the cores of a node, in ascending order, for
    /// [`SharedQueueOptions::with_cores`](crate::SharedQueueOptions::with_cores).
    ///
    /// # Errors
    ///
    /// `NotFound` for a node that does not exist or has no cores; `Malformed` if the system's list cannot be
    /// parsed.
    pub fn cores(&self, node: u32) -> Result<Vec<usize>> {
        let list = self.core_list(node)?;
        if list.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("NUMA node {node} has memory, but no cores"),
            )
            .with_hint("give the cores of another node"));
        }
        parse_cores(list).map_err(|_| {
            Error::new(
                ErrorKind::Malformed,
                format!("the system's list of the cores of NUMA node {node} cannot be parsed: {list:?}"),
            )
        })
    }

    /// Checks that a node exists and has `len` bytes that are free or in the page cache.
    ///
    /// # Errors
    ///
    /// `NotFound` for a node that does not exist; `OutOfMemory`, with `len` and the number of available
    /// bytes.
    pub(crate) fn check_room(&self, node: u32, len: usize) -> Result<()> {
        self.core_list(node)?;
        match self.available(node) {
            Some(available) if len as u64 > available => Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("NUMA node {node} does not have {len} bytes of free memory"),
            )
            .with_numbers(len as u64, available)
            .with_hint("ask for less, name another node, or let the system choose the node")),
            _ => Ok(()),
        }
    }

    /// Returns the number of a node's bytes that are free or reclaimable; `None` if the system does not
    /// report it.
    fn available(&self, node: u32) -> Option<u64> {
        let info = std::fs::read_to_string(self.dir.join(format!("node{node}/meminfo"))).ok()?;
        let kib = |name: &str| {
            // A line is, for example, `Node 0 MemFree:         3307788 kB`.
            let value = info.lines().find_map(|line| line.split_once(name)?.1.strip_prefix(':'))?;
            value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        let caches = ["Active(file)", "Inactive(file)", "SReclaimable"];
        let caches = caches.iter().filter_map(|name| kib(&format!(" {name}"))).sum::<u64>();
        Some(kib(" MemFree")?.saturating_add(caches).saturating_mul(1024))
    }
}

/// Reads a list of cores such as `0-3,8`.
///
/// # Errors
///
/// `InvalidArgument` for any other text, and for a range of more than 65536 cores.
pub fn parse_cores(list: &str) -> Result<Vec<usize>> {
    let read = || {
        let mut cores = Vec::new();
        for range in list.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            // Linux supports up to 8192 cores.
            if first > last || last - first >= 1 << 16 {
                return None;
            }
            cores.extend(first..=last);
        }
        Some(cores)
    };
    read().ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, format!("{list:?} is not a list of cores"))
            .with_hint("write numbers and ranges, such as 0,2-3")
    })
}

/// Restricts the calling thread to these cores. An empty list does not restrict the thread.
pub(crate) fn run_on(cores: &[usize]) -> Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let known = cores.iter().filter(|core| **core < CpuSet::MAX_CPU);
    known.for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).map_err(|errno| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("threads of this process may not run on cores {cores:?}"),
        )
        .with_source(std::io::Error::from(errno))
        .with_hint("name cores that the machine has and the process may use: `taskset -p PID`, `nproc`")
    })
}
