//! Placement: the CPUs that drive queues, and the NUMA node of memory.
#![expect(unsafe_code, reason = "the memory policy has no safe wrapper among our dependencies")]

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Reads CPUs as `0,2-3` or `node0`.
///
/// # Errors
///
/// The text is no list of CPUs, or names a CPU that this process may not use.
pub fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.strip_prefix("node") {
            Some(node) => {
                let path = format!("/sys/devices/system/node/node{node}/cpulist");
                let list = fs::read_to_string(&path)
                    .map_err(|e| format!("there is no NUMA node `{part}`: {path}: {e}"))?;
                all.extend(ranges(list.trim())?);
            }
            None => all.extend(ranges(part)?),
        }
    }
    let allowed = sched_getaffinity(None).map_err(|e| format!("the CPUs of this process: {e}"))?;
    match all.iter().find(|cpu| **cpu >= CpuSet::MAX_CPU || !allowed.is_set(**cpu)) {
        Some(cpu) => {
            Err(format!("there is no CPU {cpu} that this process may use; see `nproc` and `taskset -p $$`"))
        }
        None => Ok(all),
    }
}

/// Reads a list as the kernel writes it: `0-3,8`.
fn ranges(text: &str) -> Result<Vec<usize>, String> {
    let fail = || format!("`{text}` is no list of CPUs; write 0,2-3 or node0");
    let mut all = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().map_err(|_| fail())?, to.parse().map_err(|_| fail())?);
        if from > to || to > CpuSet::MAX_CPU * 1024 {
            return Err(fail());
        }
        all.extend(from..=to.min(from + CpuSet::MAX_CPU));
    }
    Ok(all)
}

/// Returns the NUMA nodes of this machine with their CPUs, such as `node0 0-31`. Empty if the kernel reports
/// none.
#[must_use]
pub fn nodes() -> Vec<String> {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let mut nodes: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("node")?.parse::<u32>().ok()?;
            let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some(format!("{name} {}", cpus.trim()))
        })
        .collect();
    nodes.sort();
    nodes
}

/// Pins the calling thread to one CPU until it is dropped.
#[derive(Debug)]
pub struct Pinned(Option<CpuSet>);

impl Pinned {
    /// Pins the calling thread to the CPU of queue number `queue`. Does nothing if `cpus` is empty.
    #[must_use]
    pub fn to(cpus: &[usize], queue: usize) -> Self {
        let before = if cpus.is_empty() { None } else { sched_getaffinity(None).ok() };
        let Some(before) = before else { return Self(None) };
        let mut only = CpuSet::new();
        only.set(cpus[queue % cpus.len()]);
        // The CPUs were checked before. One that has gone offline since is ignored.
        Self(sched_setaffinity(None, &only).is_ok().then_some(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // This was the thread's mask before.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Makes this thread, and those that it starts, allocate memory on one NUMA node only.
///
/// # Errors
///
/// The node does not exist, or the kernel has no NUMA support.
pub fn bind_memory(node: u32) -> io::Result<()> {
    let mut mask = [0_u64; 16];
    let word =
        mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    *word = 1 << (node % 64);
    let bits = mask.len() * 64;
    // SAFETY: the kernel reads `bits` bits of the mask during the call alone.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, mask.as_ptr(), bits) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(ranges("0-3,8"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(ranges("7"), Ok(vec![7]));
        for bad in ["", "a", "3-1", "1-", "0,,1", "0-999999999"] {
            assert!(ranges(bad).unwrap_err().contains("write 0,2-3"), "{bad}");
        }
        assert!(cpus("node4095").unwrap_err().contains("no NUMA node"));
        assert!(nodes().iter().all(|n| n.starts_with("node") && n.contains(' ')));
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
    fn memory_is_bound_to_nodes_that_there_are() {
        std::thread::spawn(|| {
            assert!(bind_memory(1023).is_err(), "no machine has so many");
            assert!(bind_memory(5000).is_err());
            if !nodes().is_empty() {
                // A container may forbid the call.
                let bound = bind_memory(0);
                assert!(
                    bound.as_ref().map_or_else(|e| e.raw_os_error() == Some(libc::EPERM), |()| true),
                    "{bound:?}"
                );
            }
        })
        .join()
        .unwrap();
    }
}
