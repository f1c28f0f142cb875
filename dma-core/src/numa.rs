//! NUMA nodes and cores, as Linux describes them.

use std::path::Path;

use crate::{Error, ErrorKind, Result};

/// Linux's directory of NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

/// Returns the numbers of the cores of a NUMA node, in ascending order, for
/// [`SharedQueueOptions::with_cores`](crate::SharedQueueOptions::with_cores). Reads a file of the system's.
///
/// ```
/// # use dma_core::{DmaEngine, SharedQueueOptions};
/// fn options(engine: &dyn DmaEngine) -> dma_core::Result<SharedQueueOptions> {
///     let options = SharedQueueOptions::new();
///     match engine.info().numa_node {
///         Some(node) => Ok(options.with_cores(dma_core::cores_of_node(node)?)),
///         None => Ok(options),
///     }
/// }
/// ```
///
/// # Errors
///
/// `NotFound` for a node that does not exist or has no cores; `Malformed` if the system's list is none.
pub fn cores_of_node(node: u32) -> Result<Vec<usize>> {
    cores_in(Path::new(NODES), node).map_err(|e| e.with_operation("cores of a NUMA node"))
}

fn cores_in(nodes: &Path, node: u32) -> Result<Vec<usize>> {
    let Ok(list) = std::fs::read_to_string(nodes.join(format!("node{node}/cpulist"))) else {
        let entries = std::fs::read_dir(nodes).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut known: Vec<u32> = names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
        known.sort_unstable();
        return Err(Error::new(ErrorKind::NotFound, format!("there is no NUMA node {node}"))
            .with_hint(format!("this machine has the nodes {known:?}")));
    };
    let cores = parse(list.trim()).ok_or_else(|| {
        Error::new(ErrorKind::Malformed, format!("the cores of NUMA node {node} are given as {list:?}"))
    })?;
    if cores.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("NUMA node {node} has memory and no cores"))
            .with_hint("name the cores of a node nearby"));
    }
    Ok(cores)
}

/// Reads a list such as `0-3,8`.
fn parse(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // Linux has up to 8192.
        if first > last || last >= 1 << 16 {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// Restricts the calling thread to these cores; an empty list changes nothing.
#[cfg(target_os = "linux")]
pub(crate) fn run_on(cores: &[usize]) -> Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let known = cores.iter().filter(|core| **core < CpuSet::MAX_CPU);
    known.for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).map_err(|errno| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("no thread of this process may run on cores {cores:?}"),
        )
        .with_source(std::io::Error::from(errno))
        .with_hint("name cores that the machine has and the process may use: `taskset -p PID`, `nproc`")
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run_on(cores: &[usize]) -> Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "this system does not let a thread choose its cores")
        .with_hint("name no cores"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_those_of_the_node() {
        let nodes = tempfile::tempdir().expect("a directory");
        for (node, list) in
            [(0, "0-2,7\n"), (1, "3-6,8\n"), (2, "\n"), (3, "5-3"), (4, "1,two"), (5, "0-99999999999")]
        {
            let dir = nodes.path().join(format!("node{node}"));
            std::fs::create_dir(&dir).expect("made");
            std::fs::write(dir.join("cpulist"), list).expect("written");
        }
        assert_eq!(cores_in(nodes.path(), 0).expect("cores"), [0, 1, 2, 7]);
        assert_eq!(cores_in(nodes.path(), 1).expect("cores"), [3, 4, 5, 6, 8]);
        let error = |node| cores_in(nodes.path(), node).expect_err("none");
        assert_eq!(
            error(6).to_string(),
            "not found: there is no NUMA node 6; this machine has the nodes [0, 1, 2, 3, 4, 5]"
        );
        assert_eq!(error(2).kind(), ErrorKind::NotFound);
        assert!((3..6).all(|node| error(node).kind() == ErrorKind::Malformed));
        assert_eq!(cores_of_node(u32::MAX).expect_err("none").kind(), ErrorKind::NotFound);
    }
}
