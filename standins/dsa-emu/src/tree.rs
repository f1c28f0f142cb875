//! The folders that replace `/sys` and `/dev`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::{Config, Mode, QueueConfig};
use crate::descriptor::op;

/// Start of a work queue's path by device number; the work queue's minor number follows. No device of the
/// system has this major number.
pub const DEVICE_NUMBERS: &str = "/dev/char/0:";

/// Folders below one root directory, in which programs find the devices.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Returns the folders below `root`, which need not exist yet.
    #[must_use]
    pub const fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the folder that replaces `/dev/dsa`.
    pub(crate) fn dev(&self) -> PathBuf {
        self.root.join("dev/dsa")
    }

    /// Returns the folder that replaces `/sys/bus/dsa/devices`, which contains only links.
    pub(crate) fn sysfs(&self) -> PathBuf {
        self.root.join("sys/bus/dsa/devices")
    }

    /// Returns the folder that describes a device, which is below the folder of its PCI function.
    fn device_dir(&self, number: u32) -> PathBuf {
        self.root.join("sys").join(device_below_sys(number))
    }

    /// Creates a link in the bus folder to `child` of a device, or to the device itself.
    fn link(&self, device: u32, child: Option<&str>) -> io::Result<()> {
        let mut to = Path::new("../../..").join(device_below_sys(device));
        let name = child.map_or_else(|| format!("dsa{device}"), str::to_owned);
        to.extend(child);
        std::os::unix::fs::symlink(to, self.sysfs().join(name))
    }

    /// Writes all files below `root`, which must exist. Afterwards the path of `root` contains no symbolic
    /// links.
    pub(crate) fn lay_out(root: &Path, config: &Config) -> io::Result<Self> {
        let tree = Self::at(root.canonicalize()?);
        fs::create_dir_all(tree.dev())?;
        fs::create_dir_all(tree.root.join("dev/char"))?;
        fs::create_dir_all(tree.sysfs())?;
        // Programs look for the driver in this folder.
        fs::create_dir_all(tree.root.join("sys/module/idxd"))?;
        for driver in ["idxd", "user"] {
            fs::create_dir_all(tree.root.join("sys/bus/dsa/drivers").join(driver))?;
        }
        for (queue, minor) in config.queues.iter().zip(0..) {
            let Some((device, _)) = queue.numbers() else { continue };
            tree.device(device, config)?;
            tree.queue(queue, minor)?;
        }
        Ok(tree)
    }

    fn device(&self, number: u32, config: &Config) -> io::Result<()> {
        let dir = self.device_dir(number);
        if dir.is_dir() {
            return Ok(());
        }
        let own =
            config.queues.iter().filter(|queue| queue.numbers().is_some_and(|(device, _)| device == number));
        let own: Vec<_> = own.collect();
        let most =
            |of: fn(&QueueConfig) -> u64| own.iter().map(|queue| of(queue)).max().unwrap_or(0).to_string();
        let queues =
            own.iter().map(|queue| queue.numbers().map_or(0, |(_, queue)| queue) + 1).max().unwrap_or(1);
        let size: u32 = own.iter().map(|queue| queue.size).sum();
        write_all(
            &dir,
            &[
                ("max_groups", "4"),
                ("max_work_queues", &queues.max(8).to_string()),
                ("max_engines", "4"),
                ("max_work_queues_size", &size.max(128).to_string()),
                ("max_batch_size", &most(|queue| queue.max_batch.into())),
                ("max_transfer_size", &most(|queue| queue.max_transfer)),
                ("max_read_buffers", "96"),
                ("max_tokens", "96"),
                ("read_buffer_limit", "0"),
                ("token_limit", "0"),
                ("numa_node", "0"),
                ("ims_size", "0"),
                ("gen_cap", "0x40915f010f"),
                ("op_cap", &bitmap(op::ALL)),
                ("configurable", "1"),
                ("pasid_enabled", "1"),
                ("errors", "0x0 0x0 0x0 0x0"),
                ("cmd_status", "0x0"),
                ("cdev_major", "0"),
                ("clients", "0"),
                ("state", "enabled"),
                ("version", "0x100"),
                // The kernel has no such file. It contains the stand-in's name.
                ("stand_in", "dsa-emu"),
            ],
        )?;
        write_all(
            &dir.join(format!("group{number}.0")),
            &[
                ("engines", &format!("engine{number}.0")),
                ("work_queues", &own.iter().map(|queue| &*queue.name).collect::<Vec<_>>().join(" ")),
                ("use_read_buffer_limit", "0"),
                ("use_token_limit", "0"),
                ("read_buffers_allowed", "96"),
                ("tokens_allowed", "96"),
                ("read_buffers_reserved", "0"),
                ("tokens_reserved", "0"),
                ("traffic_class_a", "1"),
                ("traffic_class_b", "1"),
            ],
        )?;
        write_all(&dir.join(format!("engine{number}.0")), &[("group_id", "0")])?;
        self.link(number, None)?;
        for child in ["group", "engine"] {
            self.link(number, Some(&format!("{child}{number}.0")))?;
        }
        Ok(())
    }

    fn queue(&self, queue: &QueueConfig, minor: u32) -> io::Result<()> {
        let Some((device, _)) = queue.numbers() else { return Ok(()) };
        let dir = self.device_dir(device).join(&queue.name);
        let shared = queue.mode == Mode::Shared;
        // The kernel accepts batches only if it also maps the work queue.
        let operations = if queue.mmap { op::ALL } else { op::ALL & !(1 << op::BATCH) };
        write_all(
            &dir,
            &[
                ("mode", queue.mode.name()),
                ("size", &queue.size.to_string()),
                ("type", &queue.kind),
                ("name", &queue.label),
                ("driver_name", "user"),
                ("group_id", "0"),
                ("priority", "10"),
                ("threshold", if shared { "8" } else { "0" }),
                ("block_on_fault", if queue.block_on_fault { "1" } else { "0" }),
                ("max_batch_size", &queue.max_batch.to_string()),
                ("max_transfer_size", &queue.max_transfer.to_string()),
                ("op_config", &bitmap(operations)),
                ("ats_disable", "0"),
                ("prs_disable", "0"),
                ("cdev_minor", &minor.to_string()),
                ("clients", "0"),
                ("occupancy", "0"),
                ("enqcmds_retries", "64"),
            ],
        )?;
        write_state(&dir, &queue.state)?;
        self.link(device, Some(&queue.name))?;
        if queue.state == "enabled" && queue.kind == "user" {
            // The file is empty, so that each store to a mapping of it traps.
            fs::write(self.dev().join(&queue.name), "")?;
            let by_number = self.root.join(format!("{}{minor}", &DEVICE_NUMBERS[1..]));
            std::os::unix::fs::symlink(Path::new("../dsa").join(&queue.name), by_number)?;
        }
        Ok(())
    }
}

/// Returns the folder of a device below `/sys`. Programs use the name of this folder's parent as the PCI
/// address, which is invented here.
fn device_below_sys(number: u32) -> PathBuf {
    format!("devices/pci{number:04x}:6a/{number:04x}:6a:01.0/dsa{number}").into()
}

/// Writes the state of the work queue in `dir`.
pub(crate) fn write_state(dir: &Path, state: &str) -> io::Result<()> {
    // The write is atomic: a reader sees either the old state or the new one.
    let new = dir.join(".state");
    fs::write(&new, format!("{state}\n"))?;
    fs::rename(new, dir.join("state"))
}

/// Removes the description that `link` in the bus folder points to, and the link.
pub(crate) fn remove(link: &Path) -> io::Result<()> {
    fs::remove_dir_all(fs::canonicalize(link)?)?;
    fs::remove_file(link)
}

fn write_all(dir: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    files.iter().try_for_each(|(file, content)| fs::write(dir.join(file), format!("{content}\n")))
}

/// Formats 256 bits as the kernel does: words of 32 bits, the highest first.
fn bitmap(low: u64) -> String {
    format!("{}{:08x},{:08x}", "00000000,".repeat(6), low >> 32, low & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_links_to_the_folder_of_the_pci_function() {
        let root = tempfile::tempdir().expect("a folder");
        let config = Config::parse("[[queue]]\nname = 'wq1.2'").expect("a configuration");
        let tree = Tree::lay_out(root.path(), &config).expect("room");
        for name in ["dsa1", "wq1.2", "group1.0", "engine1.0"] {
            let link = tree.sysfs().join(name);
            assert!(link.is_symlink(), "{name}");
            let target = link.canonicalize().expect("it leads somewhere");
            assert!(target.components().any(|folder| folder.as_os_str() == "0001:6a:01.0"), "{target:?}");
        }
        let link = tree.sysfs().join("wq1.2");
        let described = link.canonicalize().expect("it leads somewhere");
        remove(&link).expect("it goes");
        assert!(!link.is_symlink() && !described.exists());
    }
}
