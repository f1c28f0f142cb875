//! The folders that stand for `/sys` and `/dev`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::{Config, Mode, QueueConfig};
use crate::descriptor::op;

/// Folders below one root, in which programs find the devices.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The folders below `root`, whether they are there or not.
    pub(crate) const fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Stands for `/dev/dsa`.
    pub(crate) fn dev(&self) -> PathBuf {
        self.root.join("dev/dsa")
    }

    /// Stands for `/sys/bus/dsa/devices`.
    pub(crate) fn sysfs(&self) -> PathBuf {
        self.root.join("sys/bus/dsa/devices")
    }

    /// Writes everything below `root`, which exists. The path of `root` has no symbolic links then.
    pub(crate) fn lay_out(root: &Path, config: &Config) -> io::Result<Self> {
        let tree = Self::at(root.canonicalize()?);
        fs::create_dir_all(tree.dev())?;
        // Programs look for the driver there.
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
        let dir = self.sysfs().join(format!("dsa{number}"));
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
                // The kernel has no such file.
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
        // The bus lists them beside the device.
        for child in ["group", "engine"] {
            let name = format!("{child}{number}.0");
            std::os::unix::fs::symlink(
                Path::new(&format!("dsa{number}")).join(&name),
                self.sysfs().join(name),
            )?;
        }
        Ok(())
    }

    fn queue(&self, queue: &QueueConfig, minor: u32) -> io::Result<()> {
        let Some((device, _)) = queue.numbers() else { return Ok(()) };
        let dir = self.sysfs().join(&queue.name);
        let shared = queue.mode == Mode::Shared;
        // A device shows batches by `write()` only where it maps its work queues.
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
        // Programs find the work queues in the device's folder, too.
        let link = self.sysfs().join(format!("dsa{device}")).join(&queue.name);
        std::os::unix::fs::symlink(Path::new("..").join(&queue.name), link)?;
        if queue.state == "enabled" && queue.kind == "user" {
            // Empty, so that each store to a mapping of it traps.
            fs::write(self.dev().join(&queue.name), "")?;
        }
        Ok(())
    }
}

/// Writes the state of the work queue in `dir`.
pub(crate) fn write_state(dir: &Path, state: &str) -> io::Result<()> {
    // In one step: a reader finds the old state, or the new one.
    let new = dir.join(".state");
    fs::write(&new, format!("{state}\n"))?;
    fs::rename(new, dir.join("state"))
}

fn write_all(dir: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    files.iter().try_for_each(|(file, content)| fs::write(dir.join(file), format!("{content}\n")))
}

/// 256 bits as the kernel writes them: words of 32 bits, the highest first.
fn bitmap(low: u64) -> String {
    format!("{}{:08x},{:08x}", "00000000,".repeat(6), low >> 32, low & 0xffff_ffff)
}
