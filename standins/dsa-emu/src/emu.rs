//! Work queues within this process.

use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::io::Errno;

use crate::config::{Config, ConfigError};
use crate::queue::Queue;
use crate::trap;
use crate::tree::Tree;

/// Work queues of this process only, for tests. Use `dsa-emu-run` to start unmodified programs.
///
/// Installs handlers for SIGSEGV, SIGBUS and SIGILL in this process. The handlers are never removed. Dropping
/// the value ends the threads of the work queues, and removes their files. Stores to portals that are still
/// mapped then end the process, as any store to a missing page does.
///
/// ```
/// # #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))] {
/// let emu = dsa_emu::Emu::start("mode = 'shared'\nsize = 8").unwrap();
/// let mode = std::fs::read_to_string(emu.sysfs_dir().join("wq0.0/mode")).unwrap();
/// assert_eq!(mode, "shared\n");
/// assert!(emu.dev_dir().join("wq0.0").exists());
/// # }
/// ```
#[derive(Debug)]
pub struct Emu {
    _root: tempfile::TempDir,
    tree: Tree,
    queues: Vec<(&'static Queue, JoinHandle<()>)>,
}

/// An error of [`Emu::start`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The folders cannot be written, or a thread cannot be started.
    #[error("the stand-in cannot start: {0}")]
    Os(#[from] io::Error),
    /// This process cannot have more work queues at a time.
    #[error("this process has 64 work queues already: drop another `Emu`")]
    TooMany,
}

impl Emu {
    /// Creates the work queues of a configuration in a temporary folder. The README lists the keys of the
    /// configuration.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, the system refuses files or threads, or there are too many work queues.
    pub fn start(config: &str) -> Result<Self, StartError> {
        let config = Config::parse(config)
            .map_err(|problem| ConfigError { source_name: "Emu::start".to_owned(), problem })?;
        let root = tempfile::Builder::new().prefix("dsa-emu-").tempdir()?;
        let tree = Tree::lay_out(root.path(), &config)?;
        let mut emu = Self { _root: root, tree, queues: Vec::new() };
        for queue in serve(config, &emu.tree) {
            emu.queues.push(queue?);
        }
        Ok(emu)
    }

    /// Returns the folder that replaces `/dev/dsa`.
    #[must_use]
    pub fn dev_dir(&self) -> PathBuf {
        self.tree.dev()
    }

    /// Returns the folder that replaces `/sys/bus/dsa/devices`.
    #[must_use]
    pub fn sysfs_dir(&self) -> PathBuf {
        self.tree.sysfs()
    }

    fn queue(&self, name: &str) -> Option<&'static Queue> {
        self.queues.iter().map(|(queue, _)| *queue).find(|queue| queue.config.name == name)
    }

    /// Disables a work queue, as `accel-config disable-wq` does. Blocks until the running descriptor has
    /// ended; waiting descriptors are dropped. Returns true if there is a work queue of this name.
    pub fn disable(&self, name: &str) -> bool {
        self.queue(name).map(Queue::disable).is_some()
    }

    /// Enables a work queue that was disabled, as `accel-config enable-wq` does: the work queue gets a new
    /// file, and stores to mappings of the old file are lost. Blocks until the work queue's old descriptors
    /// are dropped. Returns true if there is a work queue of this name.
    ///
    /// # Errors
    ///
    /// The system refuses a file.
    pub fn enable(&self, name: &str) -> io::Result<bool> {
        self.queue(name).map(Queue::enable).transpose().map(|enabled| enabled.is_some())
    }

    /// Returns the number of descriptors that a work queue accepted, or refused because it was full.
    /// Descriptors in batches are not counted. Returns 0 for an unknown name.
    #[must_use]
    pub fn submissions(&self, name: &str) -> u64 {
        self.queue(name).map_or(0, Queue::submissions)
    }

    /// Has the effect of `write()` to the file of a work queue: submits an array of descriptors of 64 bytes
    /// each, and returns the number of accepted bytes.
    ///
    /// # Errors
    ///
    /// If no descriptor is accepted: `NODEV` if there is no such work queue or it is disabled; `INVAL` for a
    /// batch if the kernel does not map the work queue, or for a completion record that is not aligned;
    /// `AGAIN` if the work queue is full.
    ///
    /// # Safety
    ///
    /// The requirements are the device's: until the completion records are written, the program may access
    /// the memory that the descriptors name only as a running copy allows.
    #[expect(unsafe_code, reason = "descriptors have addresses")]
    pub unsafe fn write(&self, name: &str, descriptors: &[u8]) -> Result<usize, Errno> {
        self.queue(name).ok_or(Errno::NODEV)?.write(descriptors, false)
    }
}

impl Drop for Emu {
    fn drop(&mut self) {
        for (queue, thread) in self.queues.drain(..) {
            queue.close();
            // If the worker has panicked, its message was already printed.
            let _ = thread.join();
            trap::remove(queue);
        }
    }
}

/// Writes the files of the configuration in `DSA_EMU_CONFIG` or `DSA_EMU` into an existing folder. Returns
/// the folders that replace `/dev/dsa` and `/sys/bus/dsa/devices`. `dsa-emu-run` calls this; the preloaded
/// library then starts the work queues in the program.
///
/// # Errors
///
/// The configuration is invalid, or the system refuses a file.
pub fn lay_out(root: &Path) -> Result<(PathBuf, PathBuf), StartError> {
    let tree = Tree::lay_out(root, &Config::from_environment()?)?;
    Ok((tree.dev(), tree.sysfs()))
}

/// Starts the work queues of a configuration, whose files are in `tree`, and routes stores to them.
///
/// # Errors
///
/// There are too many work queues, or the system refuses a file or a thread.
pub fn serve(
    config: Config,
    tree: &Tree,
) -> impl Iterator<Item = Result<(&'static Queue, JoinHandle<()>), StartError>> {
    trap::install();
    config.queues.into_iter().map(|config| {
        // Never freed, because a signal handler may hold it.
        let queue: &'static Queue = Box::leak(Box::new(Queue::new(config, tree)));
        if !trap::add(queue) {
            return Err(StartError::TooMany);
        }
        Ok((queue, queue.start()?))
    })
}
