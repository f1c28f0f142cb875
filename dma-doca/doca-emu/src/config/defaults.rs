//! What a configuration need not say.

use std::net::Ipv4Addr;

use super::{FunctionConfig, Kind, Side};

pub(super) fn serial() -> String {
    "EMU0000X00001".to_owned()
}

pub(super) const fn rate() -> u64 {
    200
}

pub(super) const fn yes() -> bool {
    true
}

/// A BlueField seen from both of its sides: two ports on the DPU, and the host's four functions.
pub(super) fn functions() -> Vec<FunctionConfig> {
    [
        (Side::Dpu, "0000:03:00.0", "p0"),
        (Side::Dpu, "0000:03:00.1", "p1"),
        (Side::Host, "0000:3b:00.0", "ens1f0np0"),
        (Side::Host, "0000:3b:00.1", "ens1f1np1"),
        (Side::Host, "0000:b1:00.0", "ens2f0np0"),
        (Side::Host, "0000:b1:00.1", "ens2f1np1"),
    ]
    .into_iter()
    .zip(0_u8..)
    .map(|((side, pci, iface), number)| FunctionConfig {
        pci: pci.to_owned(),
        side,
        kind: Kind::Pf,
        sf: None,
        iface: Some(iface.to_owned()),
        ibdev: Some(format!("mlx5_{number}")),
        mac: Some([0x02, 0, 0, 0, 0, number + 1]),
        ipv4: Some(Ipv4Addr::new(192, 168, 100, number + 1)),
        ipv6: Some([0xfe80, 0, 0, 0, 0, 0, 0, u16::from(number) + 1].into()),
        lid: None,
        vuid: Some(format!("EMU0000X00001ECMLNXS0D0F{number}")),
        vhca_id: Some(number.into()),
        rate: rate(),
        dma: true,
        comch: true,
        sync_event: true,
        export: true,
        import: true,
        representor: None,
        hotplug: false,
        emulated: false,
        seen: true,
    })
    .collect()
}
