//! The configuration of the installed library.

use std::sync::OnceLock;

use dma_standin::config::{ProcessConfig, one_line};
use serde::Deserialize;

use crate::Nic;

/// The settings of [`State`](crate::State) that a configuration can change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    devices: usize,
    link_layer: LinkLayer,
    gid: bool,
    port_down: bool,
    max_qp_wr: i32,
    max_msg_sz: u32,
    fail_every: u64,
    hangs: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LinkLayer {
    InfiniBand = 1,
    Ethernet = 2,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            link_layer: LinkLayer::Ethernet,
            gid: true,
            port_down: false,
            max_qp_wr: 16384,
            max_msg_sz: 1 << 30,
            fail_every: 0,
            hangs: false,
        }
    }
}

impl Config {
    /// Reads and checks a configuration.
    /// An error is one line that names the key and the remedy.
    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|e| one_line(&e))?;
        match config {
            Self { max_qp_wr: ..1, .. } => {
                Err("max_qp_wr: a queue pair must have room for at least 1 request".to_owned())
            }
            Self { max_msg_sz: 0, .. } => Err("max_msg_sz: a message must have at least 1 byte".to_owned()),
            config => Ok(config),
        }
    }

    fn nic(&self) -> Nic {
        Nic::with(|state| {
            state.devices = self.devices;
            state.link_layer = self.link_layer as u8;
            state.has_gid = self.gid;
            state.port_down = self.port_down;
            (state.max_qp_wr, state.max_msg_sz) = (self.max_qp_wr, self.max_msg_sz);
            (state.fail_every, state.hangs) = (self.fail_every, self.hangs);
            state.is_networked = true;
            // Programs do not read the records, which would only grow.
            state.records = false;
        })
    }
}

/// Returns the device of this process's configuration, which is read once. Returns `None` if the
/// configuration contains a mistake, which is printed on stderr.
pub(crate) fn configured() -> Option<Nic> {
    static CONFIGURED: OnceLock<Option<Nic>> = OnceLock::new();
    let read = || ProcessConfig::new("RDMA_EMU_CONFIG", "RDMA_EMU").read(Config::parse);
    let nic = || read().map(|config| config.nic()).map_err(|error| eprintln!("rdma-emu: {error}")).ok();
    CONFIGURED.get_or_init(nic).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_reach_the_device_and_mistakes_are_named() {
        let nic = Config::parse("devices = 2\nlink_layer = 'infiniband'\ngid = false\nmax_qp_wr = 7")
            .unwrap()
            .nic();
        let state = nic.state();
        assert_eq!((state.devices, state.link_layer, state.has_gid, state.max_qp_wr), (2, 1, false, 7));
        for (text, named) in [
            ("device = 2", "device"),
            ("max_qp_wr = 0", "max_qp_wr"),
            ("max_msg_sz = 0", "max_msg_sz"),
            ("link_layer = 'token ring'", "token ring"),
        ] {
            let problem = Config::parse(text).unwrap_err();
            assert!(problem.contains(named), "{problem}");
        }
    }
}
