//! [`RdmaOptions`]: the device, its port and path, and the depth.

use std::net::SocketAddr;
use std::path::PathBuf;

use dma_core::{EngineName, ErrorKind, OptionInfo, Result};

use crate::error::error;

/// The device to open.
///
/// An engine name, such as `rdma:mlx5_0,port=2`, consists of the backend, the device, and options that
/// [`INFO`](Self::INFO) and the README list.
///
/// If no response arrives, the request is retried up to 6 times. So a copy without a response fails after 7
/// to 28 times the timeout, because a device may wait up to 4 times the configured time.
///
/// Loading a library runs its code, and listening makes this process reachable. So names from untrusted
/// sources must not contain `lib` and `listen`: `dma::parse_untrusted` refuses them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RdmaOptions {
    /// The device's name, such as `mlx5_0`. `None` (the default): the first one with an active port.
    pub device: Option<String>,
    /// The port, from 1 on. `None` (the default): the first active port.
    pub port: Option<u8>,
    /// The index of the port's GID. `None` (the default): if the port needs a GID, it is chosen: RoCE v2
    /// before v1, then an IPv4 address before a global IPv6 address before a link-local one.
    pub gid: Option<u8>,
    /// The service level, from 0 (the default) to 15.
    pub service_level: u8,
    /// The longest packet in bytes: 256, 512, 1024, 2048 or 4096. `None` (the default): the port's MTU.
    pub mtu: Option<u32>,
    /// The exponent of the time to wait for an answer, from 1 to 31: 4.096 us times 2 to the power of this.
    /// `None` (the default): 14, which is 67 ms.
    pub timeout: Option<u8>,
    /// The address and port at which importers of this engine's exports connect. Port 0 selects any free
    /// port. `None` (the default): the address of the port's GID, and any port; then memory of a port without
    /// an IP address cannot be exported.
    pub listen: Option<SocketAddr>,
    /// The depth of queues that do not choose one, in descriptors. `None` (the default): 256, or the device's
    /// limit if that is less.
    pub depth: Option<usize>,
    /// The directory of `libibverbs.so.1`. `None` (the default): the environment variable
    /// `DMA_IBVERBS_LIB_DIR`, then the system's directories.
    pub lib_dir: Option<PathBuf>,
}

/// The MTUs. The code of an MTU is its position in this list, counted from 1.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

impl RdmaOptions {
    /// The options that engine names can have.
    pub const INFO: &'static [OptionInfo] = &[
        OptionInfo::new("port", "N", "the first active one", "port of the device"),
        OptionInfo::new("gid", "N", "RoCE v2 and IPv4 first", "index of the port's GID"),
        OptionInfo::new("sl", "N", "0", "service level"),
        OptionInfo::new("mtu", "256|512|1024|2048|4096", "that of the port", "longest packet, in bytes"),
        OptionInfo::new("timeout", "N", "14", "time to wait for an answer: 4.096 us times 2 to the power N"),
        OptionInfo::new("listen", "IP:PORT", "address of the GID", "where importers of exports connect")
            .needing_trust(),
        OptionInfo::new("depth", "N", "256, or the device's limit", "default depth of the engine's queues"),
        OptionInfo::new(
            "lib",
            "FOLDER",
            "DMA_IBVERBS_LIB_DIR, then the system's",
            "folder of libibverbs.so.1",
        )
        .needing_trust(),
    ];
    /// Maximum depth of a queue, in descriptors. The device's limit may be lower.
    pub const DEPTH_MAX: usize = 16_384;

    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    dma_core::setters! {
        with_device(device: Some(impl Into<String>));
        with_port(port: Some(u8));
        with_gid(gid: Some(u8));
        with_service_level(service_level: u8);
        with_mtu(mtu: Some(u32));
        with_timeout(timeout: Some(u8));
        with_listen(listen: Some(SocketAddr));
        with_depth(depth: Some(usize));
        with_lib_dir(lib_dir: Some(impl Into<PathBuf>));
    }

    /// Reads the device and the options of an engine name: see [`INFO`](Self::INFO).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an option or value that does not exist, `OutOfRange` for a number that is not
    /// allowed. Each error lists the valid values.
    pub fn from_name(name: &EngineName) -> Result<Self> {
        let mut options = Self::new();
        options.device = name.device().map(str::to_owned);
        name.read_options(&crate::BACKEND, |key, value| {
            match key {
                "port" => options.port = Some(value.number(1..=u8::MAX)?),
                "gid" => options.gid = Some(value.number(0..=u8::MAX)?),
                "sl" => options.service_level = value.number(0..=15)?,
                "mtu" => {
                    let mtus = ["256", "512", "1024", "2048", "4096"];
                    options.mtu =
                        Some(value.choice(&std::array::from_fn::<_, 5, _>(|i| (mtus[i], MTUS[i])))?);
                }
                "timeout" => options.timeout = Some(value.number(1..=31)?),
                "listen" => options.listen = Some(value.read(str::parse::<SocketAddr>)?),
                "depth" => options.depth = Some(value.number(1..=Self::DEPTH_MAX)?),
                "lib" => options.lib_dir = Some(value.path()?),
                _ => return Err(value.not_read()),
            }
            Ok(())
        })?;
        Ok(options)
    }

    /// Checks options that were not set by an engine name, and returns the MTU's code.
    pub(crate) fn validate(&self) -> Result<Option<i32>> {
        let wrong = |what: String, limit: u64, hint| {
            let kind = ErrorKind::OutOfRange;
            Err(error(kind, what.clone()).with_hint(format!("{hint}, at most {limit}")))
        };
        match *self {
            Self { port: Some(0), .. } => return wrong("port 0".to_owned(), 255, "ports count from 1"),
            Self { service_level: level @ 16.., .. } => {
                return wrong(format!("a service level of {level}"), 15, "levels count from 0");
            }
            Self { timeout: Some(exponent @ (0 | 32..)), .. } => {
                return wrong(format!("a timeout of {exponent}"), 31, "exponents count from 1");
            }
            _ => {}
        }
        let Some(mtu) = self.mtu else { return Ok(None) };
        match MTUS.iter().zip(1..).find(|(known, _)| **known == mtu) {
            Some((_, code)) => Ok(Some(code)),
            None => Err(error(ErrorKind::InvalidArgument, format!("an MTU of {mtu} bytes"))
                .with_hint("choose 256, 512, 1024, 2048 or 4096")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: &str) -> Result<RdmaOptions> {
        RdmaOptions::from_name(&name.parse().unwrap())
    }

    #[test]
    fn names_set_every_option() {
        let read =
            options("rdma:mlx5_0,port=2,gid=3,sl=4,mtu=1024,timeout=20,listen=[::1]:7,depth=64,lib=/x")
                .unwrap();
        let expected = RdmaOptions::new()
            .with_device("mlx5_0")
            .with_port(2)
            .with_gid(3)
            .with_service_level(4)
            .with_mtu(1024)
            .with_timeout(20)
            .with_listen("[::1]:7".parse().unwrap())
            .with_depth(64)
            .with_lib_dir("/x");
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        assert_eq!(read.validate().unwrap(), Some(3));
        assert_eq!(RdmaOptions::new().validate().unwrap(), None);
    }

    #[test]
    fn bad_options_are_named() {
        for (name, says) in [
            ("rdma:mtu=9000", "4096"),
            ("rdma:mlx5_0,prot=1", "port"),
            ("rdma:lib=", "path"),
            ("rdma:listen=eth0", "listen"),
        ] {
            let error = options(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(says), "{name}: {error}");
        }
        for name in ["rdma:port=0", "rdma:sl=16", "rdma:timeout=0", "rdma:timeout=32", "rdma:depth=0"] {
            assert_eq!(options(name).unwrap_err().kind(), ErrorKind::OutOfRange, "{name}");
        }
        let defaults = RdmaOptions::new;
        for odd in [
            defaults().with_port(0),
            defaults().with_service_level(16),
            defaults().with_timeout(0),
            defaults().with_timeout(32),
            defaults().with_mtu(1500),
        ] {
            let error = odd.validate().unwrap_err();
            assert!(!error.hint().is_empty(), "{error}");
        }
    }

    #[test]
    fn libraries_and_addresses_are_for_trusted_names_only() {
        for name in ["rdma:mlx5_0,lib=/tmp/x", "rdma:listen=0.0.0.0:7"] {
            let refused = name.parse::<EngineName>().unwrap().refuse_untrusted(&crate::BACKEND).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        }
    }
}
