//! [`DsaOptions`]: the work queue, its depth, and the kernel's directories.

use std::path::PathBuf;

use dma_core::{ErrorKind, Result};

use crate::error::{NAME, error};

dma_core::options! {
    /// The work queue to open.
    ///
    /// An engine name, such as `dsa:wq0.0,depth=64`, consists of the backend, the work queue, and options
    /// that [`INFO`](Self::INFO) and the README list.
    ///
    /// The engine opens a file in `dev` for writing, and stores descriptors with addresses of this process to
    /// it. So names from untrusted sources must not choose these directories: `dma::parse_untrusted` refuses
    /// them.
    #[derive(Clone, Debug)]
    pub struct DsaOptions {
        /// The work queue's name, such as `wq0.0`. `None` (the default): the first one that can be used.
        pub queue: Option<String>, with_queue(Some(impl Into<String>));
        /// The depth of queues that do not choose one, in descriptors. `None` (the default): 256, or the
        /// device's limit if that is less.
        pub depth: Option<usize>, with_depth(Some(usize)),
            "depth": number(1..=Self::DEPTH_MAX), "default depth of the engine's queues",
            default "256, or the device's limit";
        /// The directory of the device files. `None` (the default): the environment variable `DSA_DEV_PATH`,
        /// then `/dev/dsa`.
        pub dev_dir: Option<PathBuf>, with_dev_dir(Some(impl Into<PathBuf>)),
            "dev": path("FOLDER"), "the folder of the device files",
            default "DSA_DEV_PATH, then /dev/dsa", needs trust;
        /// The directory of the devices' descriptions. `None` (the default): the environment variable
        /// `DSA_SYSFS_PATH`, then `/sys/bus/dsa/devices`.
        pub sysfs_dir: Option<PathBuf>, with_sysfs_dir(Some(impl Into<PathBuf>)),
            "sysfs": path("FOLDER"), "the folder of the devices' descriptions",
            default "DSA_SYSFS_PATH, then /sys/bus/dsa/devices", needs trust;
    }
    names NAME, device queue = |name| check_name(name).map(|()| name.to_owned()),
        "a work queue, such as wq0.0; without one, the first that can be used";
}

impl DsaOptions {
    /// Maximum depth of a queue, in descriptors. The device's limit may be lower.
    pub const DEPTH_MAX: usize = 4096;

    /// Returns the directory of the device files, and true if it is the system's.
    pub(crate) fn dev(&self) -> (PathBuf, bool) {
        directory(self.dev_dir.as_ref(), "DSA_DEV_PATH", "/dev/dsa")
    }

    /// Returns the directory of the devices' descriptions, and true if it is the system's.
    pub(crate) fn sysfs(&self) -> (PathBuf, bool) {
        directory(self.sysfs_dir.as_ref(), "DSA_SYSFS_PATH", "/sys/bus/dsa/devices")
    }
}

fn directory(chosen: Option<&PathBuf>, variable: &str, usual: &str) -> (PathBuf, bool) {
    let chosen = chosen.cloned().or_else(|| std::env::var_os(variable).map(PathBuf::from));
    let usual = PathBuf::from(usual);
    match chosen {
        Some(dir) => (dir.clone(), dir == usual),
        None => (usual, true),
    }
}

/// Checks that `name` has the form of a work queue's name: `wqX.Y`.
pub(crate) fn check_name(name: &str) -> Result<()> {
    numbers(name).map(drop).ok_or_else(|| {
        error(ErrorKind::InvalidArgument, format!("`{name}` is not the name of a work queue"))
            .with_hint("name a work queue such as wq0.0, as in /dev/dsa (`accel-config list`)")
    })
}

/// Returns the numbers of `wqX.Y`.
pub(crate) fn numbers(name: &str) -> Option<(u32, u32)> {
    let (device, queue) = name.strip_prefix("wq")?.split_once('.')?;
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Some((number(device)?, number(queue)?))
}

#[cfg(test)]
mod tests {
    use dma_core::{EngineName, ErrorKind, Result};

    use super::*;

    fn options(name: &str) -> Result<DsaOptions> {
        DsaOptions::from_name(&name.parse().unwrap())
    }

    #[test]
    fn names_set_every_option() {
        let read = options("dsa:wq1.3,depth=64,dev=/a,sysfs=/b").unwrap();
        let expected =
            DsaOptions::new().with_queue("wq1.3").with_depth(64).with_dev_dir("/a").with_sysfs_dir("/b");
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        assert_eq!((read.dev(), read.sysfs()), (("/a".into(), false), ("/b".into(), false)));
    }

    #[test]
    fn bad_options_are_named() {
        for (name, says) in [
            ("dsa:dsa0", "such as wq0.0"),
            ("dsa:wq0", "such as wq0.0"),
            ("dsa:wq0.0/../x", "such as wq0.0"),
            ("dsa:wq0.0,deep=1", "depth, dev"),
            ("dsa:wq0.0,dev=", "path"),
        ] {
            let error = options(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(says), "{name}: {error}");
        }
        for name in ["dsa:depth=0", "dsa:depth=5000"] {
            assert_eq!(options(name).unwrap_err().kind(), ErrorKind::OutOfRange, "{name}");
        }
    }

    #[test]
    fn directories_are_for_trusted_names_only() {
        for name in ["dsa:wq0.0,dev=/tmp/x", "dsa:sysfs=/tmp/x"] {
            let refused =
                name.parse::<EngineName>().unwrap().refuse_untrusted(DsaOptions::NAME_FORMAT).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        }
    }
}
