//! Placement: the CPUs of the threads that drive queues, and the NUMA node of memory.
#![expect(unsafe_code, reason = "the memory policy has no safe wrapper among our dependencies")]

use std::io;

use dma::NumaNodes;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Parses CPUs such as `0,2-3` or `node0`, on a machine with these nodes. A node stands for all of its CPUs
/// that this process may use.
pub(crate) fn cpus(nodes: &NumaNodes, text: &str) -> Result<Vec<usize>, String> {
    let allowed = sched_getaffinity(None).map_err(|e| format!("the CPUs of this process: {e}"))?;
    let allowed = |cpu: &usize| *cpu < CpuSet::MAX_CPU && allowed.is_set(*cpu);
    let mut all = Vec::new();
    for part in text.split(',') {
        if let Some(Ok(node)) = part.strip_prefix("node").map(str::parse) {
            let before = all.len();
            all.extend(nodes.cores(node).map_err(|e| e.to_string())?.into_iter().filter(allowed));
            if all.len() == before {
                return Err(format!(
                    "this process may use no CPU of {part}; see `nproc` and `taskset -p $$`"
                ));
            }
            continue;
        }
        let list = dma::contract::parse_cores(part)
            .map_err(|_| format!("`{part}` is not a list of CPUs; write 0,2-3 or node0"))?;
        if let Some(cpu) = list.iter().find(|cpu| !allowed(cpu)) {
            return Err(format!(
                "this process may not use CPU {cpu}, or it does not exist; see `nproc` and `taskset -p $$`"
            ));
        }
        all.extend(list);
    }
    Ok(all)
}

/// Pins the calling thread to one CPU until this value is dropped.
#[derive(Debug)]
pub(crate) struct Pinned(Option<CpuSet>);

impl Pinned {
    /// Pins the calling thread to the CPU of queue number `queue`. Does nothing if `cpus` is empty.
    pub(crate) fn to(cpus: &[usize], queue: usize) -> Self {
        let before = if cpus.is_empty() { None } else { sched_getaffinity(None).ok() };
        let Some(before) = before else { return Self(None) };
        let mut only = CpuSet::new();
        only.set(cpus[queue % cpus.len()]);
        // The CPUs were checked at the start. CPUs that have gone offline since then are ignored.
        Self(sched_setaffinity(None, &only).is_ok().then_some(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // This restores the thread's previous mask.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Binds memory allocations of this thread, and of the threads and processes that it starts, to one NUMA
/// node. On a machine with one node, this does nothing.
pub(crate) fn bind_memory(nodes: &NumaNodes, node: u32) -> Result<(), String> {
    nodes.core_list(node).map_err(|e| e.to_string())?;
    if nodes.numbers().len() == 1 {
        return Ok(());
    }
    let mut mask = [0_u64; 16];
    let refused = |e: io::Error| format!("the system takes no memory from NUMA node {node}: {e}");
    let word = mask.get_mut(node as usize / 64);
    *word.ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))? = 1 << (node % 64);
    let bits = mask.len() * 64;
    // SAFETY: the mask has `bits` bits, and the kernel reads it only during the call.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, mask.as_ptr(), bits) };
    if answer == 0 { Ok(()) } else { Err(refused(io::Error::last_os_error())) }
}

/// Binds memory allocations of this thread, and of threads that it starts, to NUMA node `node`. Checks that
/// the destinations' node exists.
pub(crate) fn place_memory(nodes: &NumaNodes, node: u32, dst: Option<u32>) -> Result<(), String> {
    if let Some(dst) = dst {
        nodes.core_list(dst).map_err(|e| format!("--numa {node},{dst}: {e}"))?;
    }
    bind_memory(nodes, node).map_err(|e| format!("--numa {node}: {e}"))
}

/// Priority above that of kernel threads without deadlines, and below that of kernel threads with deadlines.
const REALTIME_PRIORITY: i32 = 10;

/// Gives realtime priority (`SCHED_FIFO`) to this thread and to the threads that it starts afterwards.
pub(crate) fn realtime() -> io::Result<()> {
    // SAFETY: the structure consists of numbers, for which zero is valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = REALTIME_PRIORITY;
    // SAFETY: 0 stands for the calling thread, and the parameters are read only during the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a machine with two nodes, the second of which has the CPUs `cpus`.
    fn two_nodes(cpus: &str) -> (tempfile::TempDir, NumaNodes) {
        let dir = tempfile::tempdir().unwrap();
        for (node, list) in [("node0", "0"), ("node1", cpus)] {
            std::fs::create_dir(dir.path().join(node)).unwrap();
            std::fs::write(dir.path().join(node).join("cpulist"), list).unwrap();
        }
        let nodes = NumaNodes::read(dir.path());
        (dir, nodes)
    }

    #[test]
    fn cpus_are_those_of_lists_and_nodes() {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let (_dir, nodes) = two_nodes(&first.to_string());
        assert_eq!(cpus(&nodes, "node1"), Ok(vec![first]));
        assert_eq!(cpus(&nodes, &format!("node1,{first}")), Ok(vec![first, first]));
        for bad in ["", "a", "3-1", "1-", "0,,1", "0-999999999", "node", "nodeX"] {
            assert!(cpus(&nodes, bad).unwrap_err().contains("write 0,2-3 or node0"), "{bad}");
        }
        let error = cpus(&nodes, "node2").unwrap_err();
        assert!(error.contains("no NUMA node 2") && error.contains("[0, 1]"), "{error}");
        let (_dir, nodes) = two_nodes(&format!("{first},60000"));
        assert_eq!(cpus(&nodes, "node1"), Ok(vec![first]));
        let (_dir, nodes) = two_nodes("60000");
        assert!(cpus(&nodes, "node1").unwrap_err().contains("no CPU of node1"));
        assert!(cpus(&nodes, "60000").unwrap_err().contains("may not use CPU 60000"));
    }

    #[test]
    fn a_thread_is_pinned_for_as_long_as_it_is_asked() {
        let allowed = sched_getaffinity(None).unwrap();
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        for queue in 0..3 {
            let pinned = Pinned::to(&all, queue);
            let now = sched_getaffinity(None).unwrap();
            assert!(now.count() == 1 && now.is_set(all[queue % all.len()]));
            drop(pinned);
            assert_eq!(sched_getaffinity(None).unwrap().count(), allowed.count());
        }
        drop(Pinned::to(&[], 0));
        assert_eq!(sched_getaffinity(None).unwrap().count(), allowed.count());
    }

    #[test]
    fn sources_and_destinations_are_on_nodes_that_there_are() {
        std::thread::spawn(|| {
            let (_dir, nodes) = two_nodes("1");
            let allowed = |placed: Result<(), String>| {
                placed.as_ref().err().is_none_or(|e| e.contains("not permitted")).then_some(()).ok_or(placed)
            };
            assert_eq!(allowed(place_memory(&nodes, 0, Some(1))), Ok(()));
            assert_eq!(allowed(place_memory(&nodes, 0, Some(0))), Ok(()));
            let error = place_memory(&nodes, 0, Some(2)).unwrap_err();
            assert!(error.contains("--numa 0,2: ") && error.contains("no NUMA node 2"), "{error}");
            assert!(error.contains("this machine has the nodes [0, 1]"), "{error}");
            // On a machine with one node, node 1 does not exist.
            let one = NumaNodes::read("/nowhere");
            let error = place_memory(&one, 0, Some(1)).unwrap_err();
            assert!(
                error.contains("--numa 0,1: ") && error.contains("this machine has the nodes [0]"),
                "{error}"
            );
            assert_eq!(place_memory(&one, 0, Some(0)), Ok(()));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn memory_is_bound_to_nodes_that_there_are() {
        std::thread::spawn(|| {
            let error = bind_memory(&NumaNodes::of_system(), 5000).unwrap_err();
            assert!(error.contains("there is no NUMA node 5000; this machine has"), "{error}");
            let (_dir, nodes) = two_nodes("1");
            // Every system has node 0. A container may forbid the call.
            let bound = bind_memory(&nodes, 0);
            assert!(bound.as_ref().err().is_none_or(|e| e.contains("not permitted")), "{bound:?}");
            let (dir, _) = two_nodes("1");
            std::fs::rename(dir.path().join("node1"), dir.path().join("node1023")).unwrap();
            let error = bind_memory(&NumaNodes::read(dir.path()), 1023).unwrap_err();
            assert!(error.contains("takes no memory from NUMA node 1023"), "{error}");
        })
        .join()
        .unwrap();
    }
}
