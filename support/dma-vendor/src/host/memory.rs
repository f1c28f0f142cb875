//! Checks the limit of locked memory, huge pages and the IOMMU.

use std::fs;
use std::path::Path;

use dma_core::Finding;
use dma_process::{MEMLOCK_REMEDY, memlock_limit};

use super::read;

/// Linux's directory of huge page pools, with a directory for each page size.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Checks that this process may lock `least` bytes of memory.
#[must_use]
pub fn memlock(least: u64) -> Finding {
    let what = "memory that may be locked";
    match memlock_limit() {
        None => Finding::ok(what, "any amount"),
        Some(limit) if limit >= least => Finding::ok(what, format!("{} KiB", limit >> 10)),
        Some(limit) => Finding::warning(
            what,
            format!("{} KiB; registering memory pins it, and fails beyond this limit", limit >> 10),
            MEMLOCK_REMEDY,
        ),
    }
}

/// The huge pages of one size.
struct Pool {
    kib: u64,
    all: u64,
    free: u64,
}

fn pools(root: &Path) -> Vec<Pool> {
    let sizes = fs::read_dir(root).into_iter().flatten().flatten();
    sizes
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let number = |file: &str| read(entry.path().join(file))?.parse().ok();
            Some(Pool { kib, all: number("nr_hugepages")?, free: number("free_hugepages")? })
        })
        .collect()
}

/// Returns whether the system has reserved huge pages of any size, free or in use.
#[must_use]
pub fn has_huge_pages() -> bool {
    pools(Path::new(HUGE_PAGES)).iter().any(|pool| pool.all > 0)
}

/// Checks that huge pages with a total of `least` bytes are free and can be mapped.
#[must_use]
pub fn huge_pages(least: u64) -> Finding {
    let mounts = read("/proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    of_huge_pages(&pools(Path::new(HUGE_PAGES)), mounted, least)
}

fn of_huge_pages(pools: &[Pool], mounted: bool, least: u64) -> Finding {
    let what = "huge pages";
    let free: u64 = pools.iter().map(|pool| pool.free * pool.kib * 1024).sum();
    let reserved = pools.iter().filter(|pool| pool.all > 0);
    let found: Vec<_> = reserved
        .map(|pool| format!("{} of {} with {} MiB free", pool.free, pool.all, pool.kib >> 10))
        .collect();
    let fix = format!(
        "reserve huge pages: `echo {} | sudo tee /proc/sys/vm/nr_hugepages`, and `sudo mount -t hugetlbfs nodev /dev/hugepages` if it is not mounted",
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

/// Checks that an IOMMU translates and checks devices' accesses.
#[must_use]
pub fn iommu() -> Finding {
    let what = "IOMMU";
    let groups = fs::read_dir("/sys/kernel/iommu_groups").map_or(0, Iterator::count);
    if groups > 0 {
        return Finding::ok(what, format!("{groups} groups"));
    }
    let unsafe_mode = read("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode").as_deref() == Some("Y");
    if unsafe_mode {
        return Finding::warning(
            what,
            "none; vfio runs without an IOMMU, so a device can write to any address",
            "switch it on in the BIOS and boot with intel_iommu=on or amd_iommu=on",
        );
    }
    Finding::warning(
        what,
        "none, so vfio-pci cannot be used",
        "switch it on in the BIOS and boot with intel_iommu=on or amd_iommu=on; or bind devices to uio_pci_generic, as root",
    )
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict;

    use super::*;

    #[test]
    fn huge_pages_have_to_be_free_and_mounted() {
        let root = tempfile::tempdir().unwrap();
        for (size, all, free) in [("2048kB", "40", "32"), ("1048576kB", "0", "0"), ("odd", "9", "9")] {
            let dir = root.path().join(format!("hugepages-{size}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("nr_hugepages"), format!("{all}\n")).unwrap();
            fs::write(dir.join("free_hugepages"), format!("{free}\n")).unwrap();
        }
        let pools = pools(root.path());
        let fine = of_huge_pages(&pools, true, 64 << 20);
        assert_eq!((fine.verdict, fine.found.as_str()), (Verdict::Ok, "32 of 40 with 2 MiB free"));
        let few = of_huge_pages(&pools, true, (64 << 20) + 1);
        assert!(few.verdict == Verdict::Bad && few.found.ends_with("64 MiB are needed"), "{few:?}");
        let unmounted = of_huge_pages(&pools, false, 64 << 20);
        assert!(unmounted.verdict == Verdict::Bad && unmounted.found.contains("hugetlbfs"), "{unmounted:?}");
        let none = of_huge_pages(&[], true, 64 << 20);
        assert!(none.found.starts_with("none are reserved"), "{none:?}");
    }
}
