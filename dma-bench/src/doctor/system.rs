//! What several backends need of the system: locked memory, huge pages, an IOMMU.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::Finding;

pub(super) fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How much memory this user may lock.
pub(super) fn memlock(least: u64) -> Finding {
    let what = "memory that may be locked";
    match getrlimit(Resource::Memlock).current {
        None => Finding::ok(what, "any amount"),
        Some(limit) if limit >= least => Finding::ok(what, format!("{} KiB", limit >> 10)),
        Some(limit) if is_root() => Finding::ok(what, format!("{} KiB, but root may lock more", limit >> 10)),
        Some(limit) => Finding::warning(
            what,
            format!("{} KiB; registering memory pins it, and fails beyond that", limit >> 10),
            "raise it: `ulimit -l unlimited`, or a line `* - memlock unlimited` in /etc/security/limits.d/dma.conf",
        ),
    }
}

/// Huge pages that are there and free.
pub(super) fn huge_pages(least: u64) -> Finding {
    let what = "huge pages";
    let pool = Path::new("/sys/kernel/mm/hugepages");
    let mut free = 0;
    let mut found = Vec::new();
    for entry in fs::read_dir(pool).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kib: u64 = name.trim_start_matches("hugepages-").trim_end_matches("kB").parse().unwrap_or(0);
        let number =
            |file: &str| read(entry.path().join(file)).and_then(|t| t.parse::<u64>().ok()).unwrap_or(0);
        let (all, unused) = (number("nr_hugepages"), number("free_hugepages"));
        free += unused * kib * 1024;
        if all > 0 {
            found.push(format!("{unused} of {all} with {} MiB free", kib >> 10));
        }
    }
    let mounted =
        read("/proc/mounts").is_some_and(|m| m.lines().any(|l| l.split(' ').nth(2) == Some("hugetlbfs")));
    let fix = format!(
        "reserve some: `echo {} | sudo tee /proc/sys/vm/nr_hugepages`, and `sudo mount -t hugetlbfs nodev /dev/hugepages` if it is not mounted",
        least >> 21
    );
    if free < least {
        let found = if found.is_empty() { "none are reserved".to_owned() } else { found.join(", ") };
        return Finding::bad(what, format!("{found}; {} MiB are needed", least >> 20), fix);
    }
    if !mounted {
        return Finding::bad(what, format!("{}, but no hugetlbfs is mounted", found.join(", ")), fix);
    }
    Finding::ok(what, found.join(", "))
}

/// Whether devices' accesses are translated and checked.
pub(super) fn iommu() -> Finding {
    let what = "IOMMU";
    let groups = fs::read_dir("/sys/kernel/iommu_groups").map_or(0, Iterator::count);
    if groups > 0 {
        return Finding::ok(what, format!("{groups} groups"));
    }
    let unsafe_mode = read("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode").as_deref() == Some("Y");
    if unsafe_mode {
        return Finding::warning(
            what,
            "none; vfio runs without one, which lets a device write anywhere",
            "switch it on in the BIOS and boot with intel_iommu=on or amd_iommu=on",
        );
    }
    Finding::warning(
        what,
        "none, so vfio-pci cannot be used",
        "switch it on in the BIOS and boot with intel_iommu=on or amd_iommu=on; or bind devices to uio_pci_generic, as root",
    )
}

/// What the CPU engine likes to have.
pub(super) fn cpu() -> Vec<Finding> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut findings = vec![if cpus > 1 {
        Finding::ok("CPUs", format!("{cpus}: one drives, the others help with long copies"))
    } else {
        Finding::warning(
            "CPUs",
            "1: long copies get no help",
            "give the process more CPUs (taskset, cgroup), if there are any",
        )
    }];
    if let Some(governor) = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        findings.push(if governor == "performance" {
            Finding::ok("frequency governor", governor)
        } else {
            Finding::warning(
                "frequency governor",
                format!("{governor}: figures depend on what ran before"),
                "`cpupower frequency-set -g performance` while measuring",
            )
        });
    }
    let pages = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    findings.push(if pages.contains("[never]") {
        Finding::warning(
            "transparent huge pages",
            "off",
            "`echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`",
        )
    } else {
        Finding::ok("transparent huge pages", if pages.is_empty() { "not known".to_owned() } else { pages })
    });
    findings
}
