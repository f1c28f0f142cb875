//! [`RdmaOptions`]: the device, its port and path, and the depth.

use std::net::SocketAddr;
use std::path::PathBuf;

use dma_core::{ErrorKind, Result};

use crate::error::{NAME, error};

dma_core::options! {
    /// The device to open.
    ///
    /// An engine name, such as `rdma:mlx5_0,port=2`, consists of the backend, the device, and options that
    /// [`INFO`](Self::INFO) and the README list.
    ///
    /// If no response arrives, the request is retried up to 6 times. So a copy without a response fails after
    /// 7 to 28 times the timeout, because a device may wait up to 4 times the configured time.
    ///
    /// Loading a library runs its code, and listening makes this process reachable. So names from untrusted
    /// sources must not contain `lib` and `listen`: `dma::parse_untrusted` refuses them.
    #[derive(Clone, Debug)]
    pub struct RdmaOptions {
        /// The device's name, such as `mlx5_0`. `None` (the default): the first one with an active port.
        pub device: Option<String>, with_device(Some(impl Into<String>));
        /// The port, from 1 on. `None` (the default): the first active port.
        pub port: Option<u8>, with_port(Some(u8)),
            "port": number(1..=u8::MAX), "port of the device", default "the first active one";
        /// The index of the port's GID. `None` (the default): if the port needs a GID, it is chosen: RoCE v2
        /// before v1, then an IPv4 address before a global IPv6 address before a link-local one.
        pub gid: Option<u8>, with_gid(Some(u8)),
            "gid": number(0..=u8::MAX), "index of the port's GID", default "RoCE v2 and IPv4 first";
        /// The service level, from 0 (the default) to 15.
        pub service_level: u8, with_service_level(u8),
            "sl": number(0..=15), "service level", default "0";
        /// The longest packet in bytes: 256, 512, 1024, 2048 or 4096. `None` (the default): the port's MTU.
        pub mtu: Option<u32>, with_mtu(Some(u32)),
            "mtu": choice("256" => 256, "512" => 512, "1024" => 1024, "2048" => 2048, "4096" => 4096),
            "longest packet, in bytes", default "that of the port";
        /// The exponent of the time to wait for an answer, from 1 to 31: 4.096 us times 2 to the power of
        /// this. `None` (the default): 14, which is 67 ms.
        pub timeout: Option<u8>, with_timeout(Some(u8)),
            "timeout": number(1..=31), "time to wait for an answer: 4.096 us times 2 to the power N",
            default "14";
        /// The address and port at which importers of this engine's exports connect. Port 0 selects any free
        /// port. `None` (the default): the address of the port's GID, and any port; then memory of a port
        /// without an IP address cannot be exported.
        pub listen: Option<SocketAddr>, with_listen(Some(SocketAddr)),
            "listen": read("IP:PORT", str::parse), "where importers of exports connect",
            default "address of the GID", needs trust;
        /// The depth of queues that do not choose one, in descriptors. `None` (the default): 256, or the
        /// device's limit if that is less.
        pub depth: Option<usize>, with_depth(Some(usize)),
            "depth": number(1..=Self::DEPTH_MAX), "default depth of the engine's queues",
            default "256, or the device's limit";
        /// The directory of `libibverbs.so.1`. `None` (the default): the environment variable
        /// `DMA_IBVERBS_LIB_DIR`, then the system's directories.
        pub lib_dir: Option<PathBuf>, with_lib_dir(Some(impl Into<PathBuf>)),
            "lib": path("FOLDER"), "folder of libibverbs.so.1",
            default "DMA_IBVERBS_LIB_DIR, then the system's", needs trust;
    }
    names NAME, device device = |name| Ok(name.to_owned()),
        "an RDMA device, such as mlx5_0; without one, the first with an active port";
}

/// The MTUs. The code of an MTU is its position in this list, counted from 1.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

impl RdmaOptions {
    /// Maximum depth of a queue, in descriptors. The device's limit may be lower.
    pub const DEPTH_MAX: usize = 16_384;

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
    use dma_core::EngineName;

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
            let refused =
                name.parse::<EngineName>().unwrap().refuse_untrusted(RdmaOptions::NAME_FORMAT).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        }
    }
}
