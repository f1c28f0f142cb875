//! Work queues as the kernel describes them, and the reasons that prevent their use.

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use dma_core::{Error, ErrorKind, Result};
use dma_process::above_stdio;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::DsaOptions;
use crate::error::{NAME, error};
use crate::options::{check_name, numbers};
use crate::portal::{Kernel, Portal};
use dsa_sys::op;

/// The properties of a work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkQueue {
    /// Names of the work queue (`name`, such as `wq0.0`) and of its device (`device`, such as `dsa0`).
    pub(crate) name: String,
    pub(crate) device: String,
    /// The directory that describes the work queue.
    pub(crate) dir: PathBuf,
    pub(crate) shared: bool,
    /// Number of entries.
    pub(crate) size: u32,
    pub(crate) block_on_fault: bool,
    /// Longest batch, in descriptors.
    pub(crate) max_batch: u32,
    /// Longest transfer, in bytes.
    pub(crate) max_transfer: u64,
    /// The supported operations: one bit for each opcode.
    pub(crate) operations: u64,
    /// The device's version, as the kernel writes it.
    pub(crate) version: String,
    /// The NUMA node of the device.
    pub(crate) numa_node: Option<u32>,
    /// The name of the stand-in, or `None` for a real device.
    pub(crate) stand_in: Option<String>,
}

/// Returns the names of all work queues, ordered by their numbers.
///
/// # Errors
///
/// `NotFound`: the driver's directory does not exist or is empty.
pub(crate) fn names(options: &DsaOptions) -> Result<Vec<String>> {
    let (dir, usual) = options.sysfs();
    let entries = fs::read_dir(&dir).map_err(|e| no_driver(&dir, usual, e))?;
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some((numbers(&name)?, name)))
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        return Err(error(ErrorKind::NotFound, format!("{} contains no work queue", dir.display())).with_hint(
            "the driver idxd has no DSA device: check `lspci -d 8086:0b25`, that the firmware enables DSA, and `dmesg | grep idxd`",
        ));
    }
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

fn no_driver(dir: &Path, usual: bool, e: std::io::Error) -> Error {
    if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(&e) {
        return Error::of_system_call(&format!("open of {}", dir.display()), e).with_backend(NAME);
    }
    let message = format!("{}: {e}", dir.display());
    if !usual {
        return error(ErrorKind::NotFound, message)
            .with_hint("DSA_SYSFS_PATH and the option `sysfs` name a folder like /sys/bus/dsa/devices");
    }
    let cpu = if has_instructions() { "" } else { "; this processor lacks MOVDIR64B, so it has no DSA" };
    error(ErrorKind::NotFound, format!("the driver idxd is not loaded: {message}{cpu}")).with_hint(
        "DSA needs a Xeon from Sapphire Rapids on: `modprobe idxd`, with a kernel built with CONFIG_INTEL_IDXD_SVM and booted with intel_iommu=on,sm_on; `sim:profile=dsa` shows how one would behave",
    )
}

/// Returns true if the processor has MOVDIR64B.
pub(crate) fn has_instructions() -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "movdir64b"))
}

/// Returns the content of a small file, without white space at its ends.
fn text(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok().map(|text| text.trim().to_owned())
}

/// Reads a number of a work queue or device, decimal or hexadecimal.
fn number(dir: &Path, file: &str) -> Result<u64> {
    let read = text(dir, file).ok_or_else(|| contradiction(dir, format!("has no file `{file}`")))?;
    let parsed = match read.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => read.parse(),
    };
    parsed.map_err(|_| contradiction(dir, format!("says `{read}` in `{file}`, which is not a number")))
}

fn contradiction(dir: &Path, what: String) -> Error {
    error(ErrorKind::Malformed, format!("{} {what}", dir.display())).with_hint(
        "the kernel's description of the device is not complete: update the kernel, or check DSA_SYSFS_PATH",
    )
}

/// Returns true if the work queue in `dir` is disabled or gone. The kernel writes this state once the device
/// has ended the work queue's descriptors. Returns false if the state cannot be read for another reason.
pub(crate) fn is_disabled(dir: &Path) -> bool {
    match fs::read_to_string(dir.join("state")) {
        Ok(state) => state.trim() == "disabled",
        Err(e) => e.kind() == std::io::ErrorKind::NotFound && dir.parent().is_some_and(Path::is_dir),
    }
}

/// Returns true if `path` is now another file than `opened`. The kernel removes the file of a work queue that
/// is disabled, and creates a new one when it is enabled.
pub(crate) fn is_replaced(opened: BorrowedFd<'_>, path: &Path) -> bool {
    let file = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    match (rustix::fs::fstat(opened).map(file), rustix::fs::stat(path).map(file)) {
        (Ok(opened), Ok(there)) => opened != there,
        _ => false,
    }
}

impl WorkQueue {
    /// Reads the description of work queue `name`, and checks that user space may use it.
    pub(crate) fn read(options: &DsaOptions, name: &str) -> Result<Self> {
        check_name(name)?;
        let (sysfs, usual) = options.sysfs();
        let dir = sysfs.join(name);
        if !dir.is_dir() {
            let there = names(options)?.join(", ");
            return Err(error(ErrorKind::NotFound, format!("there is no work queue {name}"))
                .with_hint(format!("there are: {there} (`accel-config list -i`)")));
        }
        let device = format!("dsa{}", numbers(name).map_or(0, |(device, _)| device));
        let device_dir = sysfs.join(&device);
        if !device_dir.is_dir() {
            return Err(contradiction(&sysfs, format!("has {name} without {device}")));
        }
        let wq = format!("{device}/{name}");
        let kind = text(&dir, "type").unwrap_or_default();
        let state = text(&dir, "state").unwrap_or_else(|| "gone".to_owned());
        if state != "enabled" {
            return Err(error(ErrorKind::NotFound, format!("work queue {name} is {state}")).with_hint(format!(
                "`accel-config config-wq {wq} --group-id=0 --mode=dedicated --wq-size=16 --type=user --driver-name=user --name=dma --priority=10`, \
                 `accel-config enable-device {device}`, `accel-config enable-wq {wq}` (as root)"
            )));
        }
        if kind != "user" {
            return Err(error(ErrorKind::InUse, format!("work queue {name} is of type `{kind}`, not `user`")).with_hint(format!(
                "`accel-config disable-wq {wq}`, `accel-config config-wq {wq} --type=user --driver-name=user --name=dma`, `accel-config enable-wq {wq}` (as root)"
            )));
        }
        if usual && text(&device_dir, "pasid_enabled").as_deref() == Some("0") {
            return Err(error(
                ErrorKind::Unsupported,
                format!("{device} has no address space identifiers (PASID)"),
            )
            .with_hint("enable VT-d in the firmware, and boot with intel_iommu=on,sm_on"));
        }
        let shared = match text(&dir, "mode").as_deref() {
            Some("dedicated") => false,
            Some("shared") => true,
            mode => return Err(contradiction(&dir, format!("says mode `{}`", mode.unwrap_or("")))),
        };
        let size = u32::try_from(number(&dir, "size")?).unwrap_or(u32::MAX);
        if size == 0 {
            return Err(error(ErrorKind::OutOfResources, format!("work queue {name} has 0 entries"))
                .with_hint(format!("`accel-config disable-wq {wq}`, `accel-config config-wq {wq} --wq-size=16`, `accel-config enable-wq {wq}` (as root)")));
        }
        let either = |file: &str| number(&dir, file).or_else(|_| number(&device_dir, file));
        let max_transfer = either("max_transfer_size")?.min(u64::from(u32::MAX));
        if max_transfer == 0 {
            return Err(contradiction(&dir, "allows transfers of 0 bytes".to_owned()));
        }
        let capable = text(&device_dir, "op_cap")
            .and_then(|text| bits(&text))
            .ok_or_else(|| contradiction(&device_dir, "has no list of operations `op_cap`".to_owned()))?;
        let configured = text(&dir, "op_config").and_then(|text| bits(&text)).unwrap_or(u64::MAX);
        let operations = capable & configured;
        if operations & 1 << op::MEMMOVE == 0 {
            return Err(error(ErrorKind::Unsupported, format!("work queue {name} does not copy")).with_hint(
                "`op_cap` of the device or `op_config` of the work queue leaves opcode 3 out: configure it",
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            device,
            shared,
            size,
            block_on_fault: text(&dir, "block_on_fault").as_deref() == Some("1"),
            // Older kernels have this file only for the device. If both files are missing, the device does
            // not accept batches.
            max_batch: either("max_batch_size").map_or(1, |most| u32::try_from(most).unwrap_or(u32::MAX)),
            max_transfer,
            operations,
            // The file contains -1 on a machine with one NUMA node.
            numa_node: dma_vendor::host::numa_node(&device_dir),
            version: text(&device_dir, "version").unwrap_or_else(|| "unknown".to_owned()),
            stand_in: text(&device_dir, "stand_in"),
            dir,
        })
    }

    /// Returns true if the work queue has the operation.
    pub(crate) const fn has(&self, opcode: u8) -> bool {
        self.operations >> opcode & 1 == 1
    }

    /// Returns the path of the work queue's file.
    pub(crate) fn path(&self, options: &DsaOptions) -> PathBuf {
        options.dev().0.join(&self.name)
    }

    /// Opens the work queue's file.
    pub(crate) fn open(&self, options: &DsaOptions) -> Result<Box<dyn Portal>> {
        let (dir, usual) = options.dev();
        let path = dir.join(&self.name);
        let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map(above_stdio)
            .map_err(|errno| cannot_open(&path, errno))?;
        let kind = fs::metadata(&path).map(|meta| meta.file_type());
        if usual && !kind.is_ok_and(|kind| kind.is_char_device()) {
            return Err(error(ErrorKind::Malformed, format!("{} is not a device file", path.display())).with_hint(
                format!("remove it, and let udev make it: `accel-config disable-wq {0}/{1}`, `accel-config enable-wq {0}/{1}`", self.device, self.name),
            ));
        }
        let portal = Kernel::new(file, self.shared).map_err(|errno| cannot_open(&path, errno))?;
        if !portal.takes_batches() {
            let queue = self.name.clone();
            dma_core::deferred_log!(
                info,
                queue,
                "descriptors go through write(): mapping needs CAP_SYS_RAWIO"
            );
        }
        Ok(Box::new(portal))
    }
}

fn cannot_open(path: &Path, errno: Errno) -> Error {
    let path = path.display();
    if let Errno::MFILE | Errno::NFILE = errno {
        return Error::of_system_call(&format!("open of {path}"), errno.into()).with_backend(NAME);
    }
    let (kind, hint) = match errno {
        Errno::NOENT => (
            ErrorKind::NotFound,
            "the kernel describes the work queue, but its device file is missing: check udev, or mount /dev/dsa into the container".to_owned(),
        ),
        Errno::ACCESS | Errno::PERM => (
            ErrorKind::PermissionDenied,
            format!("run as root, or give this user the file: `chown $USER {path}`, or a udev rule for the subsystem dsa"),
        ),
        Errno::BUSY => (
            ErrorKind::InUse,
            format!("a dedicated work queue has one user at a time: see `fuser {path}`, or configure a shared one"),
        ),
        Errno::NXIO | Errno::NODEV => (ErrorKind::DeviceLost, "enable the work queue: `accel-config enable-wq`".to_owned()),
        _ => (ErrorKind::Os, "see `dmesg | grep idxd`".to_owned()),
    };
    error(kind, format!("{path}: {}", std::io::Error::from(errno))).with_hint(hint)
}

/// Reads the lowest 64 bits of a bitmap. The text has words of 32 bits separated by commas, the highest
/// first. Older kernels write words of 64 bits separated by spaces, the lowest first.
fn bits(text: &str) -> Option<u64> {
    let word = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    if !text.contains(',') {
        return text.split_whitespace().next().and_then(word);
    }
    let mut words = text.rsplit(',').map(|text| word(text.trim()));
    let low = words.next()??;
    let high = words.next().unwrap_or(Some(0))?;
    (low <= u64::from(u32::MAX) && high <= u64::from(u32::MAX)).then_some(high << 32 | low)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates the files of `wq0.0` and `dsa0` in a new folder, with the given files changed.
    pub(crate) fn tree(changes: &[(&str, &str)]) -> (tempfile::TempDir, DsaOptions) {
        let root = tempfile::tempdir().unwrap();
        let (sysfs, dev) = (root.path().join("sys"), root.path().join("dev"));
        for dir in [&sysfs.join("dsa0"), &sysfs.join("wq0.0"), &dev] {
            fs::create_dir_all(dir).unwrap();
        }
        let files = [
            ("dsa0/op_cap", "00000000,00000000,00000000,00000000,00000000,00000000,00000001,003f03ff"),
            ("dsa0/version", "0x100"),
            ("wq0.0/mode", "dedicated"),
            ("wq0.0/size", "16"),
            ("wq0.0/type", "user"),
            ("wq0.0/state", "enabled"),
            ("wq0.0/block_on_fault", "0"),
            ("wq0.0/max_batch_size", "32"),
            ("wq0.0/max_transfer_size", "2147483648"),
        ];
        for (file, content) in files.iter().chain(changes) {
            fs::write(sysfs.join(file), format!("{content}\n")).unwrap();
        }
        fs::write(dev.join("wq0.0"), "").unwrap();
        (root, DsaOptions::new().with_sysfs_dir(sysfs).with_dev_dir(dev))
    }

    #[test]
    fn a_work_queue_is_read() {
        let (_root, options) = tree(&[]);
        assert_eq!(names(&options).unwrap(), ["wq0.0"]);
        let read = WorkQueue::read(&options, "wq0.0").unwrap();
        assert_eq!((read.size, read.max_batch, read.max_transfer), (16, 32, 2 << 30));
        assert!(!read.shared && !read.block_on_fault && read.device == "dsa0");
        assert!(read.has(op::MEMMOVE) && read.has(op::DUALCAST) && read.has(op::COPY_CRC));
        let (_root, options) = tree(&[("wq0.0/op_config", "00000000,00000008"), ("wq0.0/mode", "shared")]);
        let read = WorkQueue::read(&options, "wq0.0").unwrap();
        assert!(read.shared && read.has(op::MEMMOVE) && !read.has(op::FILL));
        assert_eq!(read.numa_node, None);
        for (content, node) in [("-1", None), ("0", Some(0)), ("1", Some(1))] {
            let (_root, options) = tree(&[("dsa0/numa_node", content)]);
            assert_eq!(WorkQueue::read(&options, "wq0.0").unwrap().numa_node, node);
        }
    }

    #[test]
    fn obstacles_have_a_remedy() {
        use ErrorKind::{InUse, Malformed, NotFound, OutOfResources, Unsupported};
        for (change, kind, says) in [
            (("wq0.0/state", "disabled"), NotFound, "accel-config enable-wq dsa0/wq0.0"),
            (("wq0.0/type", "kernel"), InUse, "--type=user"),
            (("wq0.0/size", "0"), OutOfResources, "--wq-size=16"),
            (("wq0.0/size", "many"), Malformed, "is not a number"),
            (("wq0.0/mode", "odd"), Malformed, "mode `odd`"),
            (("wq0.0/max_transfer_size", "0"), Malformed, "0 bytes"),
            (("dsa0/op_cap", "what"), Malformed, "op_cap"),
            (("dsa0/op_cap", "0x3"), Unsupported, "does not copy"),
        ] {
            let (_root, options) = tree(&[change]);
            let error = WorkQueue::read(&options, "wq0.0").unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(says), "{error} says {says}");
        }
        let (_root, options) = tree(&[]);
        let error = WorkQueue::read(&options, "wq0.7").unwrap_err();
        assert!(error.kind() == NotFound && error.hint().contains("wq0.0"), "{error}");
        let error = names(&options.clone().with_sysfs_dir("/nowhere")).unwrap_err();
        assert!(error.kind() == NotFound && error.to_string().contains("/nowhere"), "{error}");
        let read = WorkQueue::read(&options, "wq0.0").unwrap();
        let error = read.open(&options.with_dev_dir("/nowhere")).unwrap_err();
        assert!(error.kind() == NotFound && error.hint().contains("udev"), "{error}");
    }

    #[test]
    fn only_a_state_that_is_read_ends_a_queue() {
        let (root, options) = tree(&[("wq0.0/state", "unknown")]);
        let dir = options.sysfs().0.join("wq0.0");
        assert!(!is_disabled(&dir));
        fs::write(dir.join("state"), "disabled\n").unwrap();
        assert!(is_disabled(&dir));
        fs::remove_dir_all(&dir).unwrap();
        assert!(is_disabled(&dir), "the device is gone");
        drop(root);
        assert!(!is_disabled(&dir), "no device is described any more");
    }

    #[test]
    fn open_errors_have_kinds() {
        let path = Path::new("/dev/dsa/wq0.0");
        for (errno, kind) in [
            (Errno::BUSY, ErrorKind::InUse),
            (Errno::ACCESS, ErrorKind::PermissionDenied),
            (Errno::NXIO, ErrorKind::DeviceLost),
            (Errno::IO, ErrorKind::Os),
        ] {
            let error = cannot_open(path, errno);
            assert!(error.kind() == kind && !error.hint().is_empty(), "{error}");
        }
    }

    #[test]
    fn bitmaps_have_two_spellings() {
        assert_eq!(bits("00000000,00000001,003f03ff"), Some(0x1_003f_03ff));
        assert_eq!(bits("0x1003f03ff 0x0 0x0 0x0"), Some(0x1_003f_03ff));
        assert_eq!(bits("3f"), Some(0x3f));
        for odd in ["", "x", ",", "100000000,0"] {
            assert_eq!(bits(odd), None, "{odd}");
        }
    }
}
