//! The memory that the system and the control groups leave to this process.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A group of version 1 without a limit has a limit of about 2^63 bytes.
const UNLIMITED: u64 = 1 << 62;

/// The files of a control group, by the version of its hierarchy.
struct ControlFiles {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` that count page cache, which the kernel reclaims before it ends a process.
    cache: [&'static str; 2],
    swap_limit: &'static str,
    swap_usage: &'static str,
    /// True if the files of swap count memory and swap together.
    swap_has_memory: bool,
}

const V1: ControlFiles = ControlFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_active_file ", "total_inactive_file "],
    swap_limit: "memory.memsw.limit_in_bytes",
    swap_usage: "memory.memsw.usage_in_bytes",
    swap_has_memory: true,
};

const V2: ControlFiles = ControlFiles {
    limit: "memory.max",
    usage: "memory.current",
    cache: ["active_file ", "inactive_file "],
    swap_limit: "memory.swap.max",
    swap_usage: "memory.swap.current",
    swap_has_memory: false,
};

/// Returns the number of bytes that this process can allocate, including swap: the smallest of the memory
/// that the system reports as available (`MemAvailable` in proc_meminfo(5)) and of the memory that the
/// control group of this process and its parents leave (`memory.max`, or `memory.limit_in_bytes` of version
/// 1). Returns `None` if /proc is not mounted.
///
/// Check it before an allocation: the kernel overcommits, and may kill a process when the memory is used.
#[must_use]
pub fn available_memory() -> Option<u64> {
    let meminfo = read(Path::new("/proc/meminfo"))?;
    let bytes = |name| Some(number_after(&meminfo, name)? << 10);
    let swap = bytes("SwapFree:").unwrap_or(0);
    let system = bytes("MemAvailable:")?.saturating_add(swap);
    Some(left_by_groups(Path::new("/proc/self"), swap).map_or(system, |left| left.min(system)))
}

/// Checks that `len` bytes are available to this process, before it allocates them. One reading of the
/// [available memory](available_memory) serves all calls of 100 ms, less their bytes, because reading it
/// takes longer than an allocation. If the available memory is unknown, every
/// length passes.
///
/// # Errors
///
/// The available bytes.
pub fn check_available(len: u64) -> Result<(), u64> {
    static AVAILABLE: Mutex<Available> = Mutex::new(Available::UNREAD);
    let mut unread = Available::UNREAD;
    let mut shared = AVAILABLE.try_lock();
    // Do not wait for the lock: in a forked child, a thread that does not exist there may hold it.
    let available = shared.as_deref_mut().unwrap_or(&mut unread);
    available.take(len, Instant::now(), available_memory)
}

/// The available memory when it was last read, less the allocations since.
struct Available {
    left: u64,
    /// The time of the last reading.
    read_at: Option<Instant>,
}

impl Available {
    const UNREAD: Self = Self { left: 0, read_at: None };
    /// Time for which a reading is used.
    const READ_EVERY: Duration = Duration::from_millis(100);

    /// Takes `len` bytes. Before it refuses, it reads again, because memory may have been freed. If `read`
    /// returns `None`, the available memory is unknown.
    ///
    /// # Errors
    ///
    /// The available bytes.
    fn take(&mut self, len: u64, now: Instant, read: impl FnOnce() -> Option<u64>) -> Result<(), u64> {
        let is_recent = self.read_at.is_some_and(|at| now.duration_since(at) < Self::READ_EVERY);
        if !is_recent || len > self.left {
            *self = Self { left: read().unwrap_or(u64::MAX), read_at: Some(now) };
        }
        self.left = self.left.checked_sub(len).ok_or(self.left)?;
        Ok(())
    }
}

/// Returns the number of bytes that the control groups of `process`, a directory of procfs, leave to it.
/// Returns `None` without a limit. `swap` is the free swap space of the system, in bytes.
fn left_by_groups(process: &Path, swap: u64) -> Option<u64> {
    let groups = read(&process.join("cgroup"))?;
    let mounts = read(&process.join("mountinfo"))?;
    let left = mounts.lines().filter_map(|mount| {
        let (place, file_system) = mount.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, Path::new(place.next()?));
        let mut file_system = file_system.split(' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1)?);
        let (files, controller) = match kind {
            "cgroup2" => (V2, ""),
            "cgroup" if options.split(',').any(|option| option == "memory") => (V1, "memory"),
            _ => return None,
        };
        let group = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })?;
        // A container may see only its own group, mounted as the root of the hierarchy.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let below =
            if below.components().any(|part| part == Component::ParentDir) { Path::new("") } else { below };
        let group = point.join(below);
        group
            .ancestors()
            .take_while(|dir| dir.starts_with(point))
            .filter_map(|dir| files.left(dir, swap))
            .min()
    });
    left.min()
}

impl ControlFiles {
    /// Returns the number of bytes that the group of this directory leaves; `None` without a limit.
    fn left(&self, group: &Path, swap: u64) -> Option<u64> {
        // A group of version 2 without a limit has the text "max".
        let number = |name| read(&group.join(name))?.trim().parse::<u64>().ok();
        let limit = number(self.limit).filter(|limit| *limit < UNLIMITED)?;
        let usage = number(self.usage)?;
        let stat = read(&group.join("memory.stat")).unwrap_or_default();
        let cache: u64 = self.cache.iter().filter_map(|name| number_after(&stat, name)).sum();
        let left = limit.saturating_sub(usage.saturating_sub(cache));
        let swap_left = number(self.swap_limit).map_or(u64::MAX, |limit| {
            let usage = number(self.swap_usage).unwrap_or(0);
            limit.saturating_sub(if self.swap_has_memory { usage.saturating_sub(cache) } else { usage })
        });
        Some(if self.swap_has_memory {
            left.saturating_add(swap).min(swap_left)
        } else {
            left.saturating_add(swap.min(swap_left))
        })
    }
}

/// Reads a file of procfs or of a control group with few system calls. These files have no length. Returns
/// `None` without memory for the text, too.
fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    text.try_reserve_exact(16 << 10).ok()?;
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the number after `name` at the start of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Writes files below `dir`.
    fn write(dir: &Path, files: &[(&str, String)]) {
        for (name, text) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
    }

    fn bytes(mib: u64) -> String {
        format!("{}\n", mib * MIB)
    }

    /// Returns what groups leave to a process with these lines of `cgroup`, whose hierarchy is mounted as
    /// `file_system`.
    fn left(groups: &str, root: &str, file_system: &str, swap: u64, files: &[(&str, String)]) -> Option<u64> {
        let dir = tempfile::tempdir().expect("a folder");
        let point = dir.path().join("groups");
        write(&point, files);
        let mount = format!(
            "1 1 0:1 / / rw - ext4 /dev/root rw\n35 31 0:32 {root} {} rw shared:3 - {file_system}\n",
            point.display()
        );
        write(dir.path(), &[("proc/cgroup", groups.to_owned()), ("proc/mountinfo", mount)]);
        left_by_groups(&dir.path().join("proc"), swap).map(|left| left / MIB)
    }

    #[test]
    fn the_limits_of_a_group_and_its_parents_count() {
        let group = |max: String, current| {
            [
                ("a/b/memory.max", max),
                ("a/b/memory.current", bytes(current)),
                (
                    "a/b/memory.stat",
                    format!("anon 5\nfile 9\nactive_file {}\ninactive_file {}\n", 3 * MIB, 4 * MIB),
                ),
                ("a/memory.max", bytes(200)),
                ("a/memory.current", bytes(50)),
            ]
        };
        let left_of = |max, current, swap| {
            left("0::/a/b\n", "/", "cgroup2 cgroup2 rw", swap * MIB, &group(max, current))
        };
        // The page cache of the group can be reclaimed.
        assert_eq!(left_of(bytes(100), 40, 0), Some(67));
        // The parent has less, or the group itself has no limit.
        assert_eq!(left_of(bytes(400), 40, 0), Some(150));
        assert_eq!(left_of("max\n".to_owned(), 40, 0), Some(150));
        // A group without a limit of swap uses that of the system.
        assert_eq!(left_of(bytes(100), 40, 20), Some(87));
        // More than the limit is in use.
        assert_eq!(left_of(bytes(10), 40, 0), Some(0));
    }

    #[test]
    fn a_limit_of_swap_counts() {
        let files = [
            ("memory.max", bytes(100)),
            ("memory.current", bytes(40)),
            ("memory.swap.max", bytes(8)),
            ("memory.swap.current", bytes(5)),
        ];
        assert_eq!(left("0::/\n", "/", "cgroup2 none rw", 50 * MIB, &files), Some(63));
    }

    #[test]
    fn version_1_is_read() {
        let groups = "9:name=systemd:/\n4:cpu,memory:/docker/id\n0::/\n";
        let files = |memsw| {
            [
                ("memory.limit_in_bytes", bytes(100)),
                ("memory.usage_in_bytes", bytes(40)),
                (
                    "memory.stat",
                    format!("active_file 1\ntotal_active_file {}\ntotal_inactive_file 0\n", 10 * MIB),
                ),
                ("memory.memsw.limit_in_bytes", bytes(memsw)),
                ("memory.memsw.usage_in_bytes", bytes(45)),
            ]
        };
        // The mount shows the group of the container as its root.
        let left_of =
            |memsw| left(groups, "/docker/id", "cgroup cgroup rw,cpu,memory", 50 * MIB, &files(memsw));
        assert_eq!(left_of(1000), Some(120));
        assert_eq!(left_of(110), Some(75));
        assert_eq!(left(groups, "/docker/id", "cgroup cgroup rw,cpu", 0, &files(1000)), None);
    }

    #[test]
    fn one_reading_serves_allocations_until_it_is_old_or_used_up() {
        let (mut available, start) = (Available::UNREAD, Instant::now());
        let old = start + Available::READ_EVERY;
        let unread = || panic!("the last reading is recent");
        assert_eq!(available.take(10, start, || Some(100)), Ok(()));
        assert_eq!(available.take(40, start, unread), Ok(()));
        assert_eq!(available.take(50, old - Duration::from_nanos(1), unread), Ok(()));
        // Memory was freed, or the system still lacks it.
        assert_eq!(available.take(1, start, || Some(60)), Ok(()));
        assert_eq!(available.take(60, start, || Some(59)), Err(59));
        assert_eq!(available.take(59, start, unread), Ok(()));
        assert_eq!(available.take(5, old, || Some(5)), Ok(()));
        // A system without procfs.
        assert_eq!(available.take(u64::MAX, start, || None), Ok(()));
    }

    #[test]
    fn groups_beyond_the_mount_and_processes_without_groups_have_no_limit_here() {
        let files = [("memory.max", "max\n".to_owned()), ("memory.current", bytes(1))];
        assert_eq!(left("0::/../../x\n", "/", "cgroup2 cgroup2 rw", 0, &files), None);
        assert_eq!(left("", "/", "cgroup2 cgroup2 rw", 0, &files), None);
        assert!(available_memory().is_some_and(|available| available > 0));
    }
}
