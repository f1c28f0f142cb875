//! A port's GIDs, and the choice of a GID by which the port reaches itself.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::path::Path;

use dma_core::{Error, ErrorKind, Result};

use crate::error::error;
use crate::handle::Handle;
use crate::verbs::*;

/// The kernel's directory of devices.
pub(crate) const DEVICES: &str = "/sys/class/infiniband";

/// The protocol of a GID of an Ethernet port, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Type {
    /// RoCE over UDP.
    RoceV2,
    /// The kernel does not report the type.
    Unknown,
    /// RoCE in its own Ethernet frames. Software devices do not support it.
    RoceV1,
}

/// The kind of a GID's address, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Ipv4,
    Global,
    /// Link-local addresses cannot be used until the kernel has checked that no other machine has the
    /// address, which takes a second or longer.
    LinkLocal,
}

impl Scope {
    const fn of(gid: &ibv_gid) -> Self {
        match gid.raw {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => Self::Ipv4,
            [0xfe, 0x80..=0xbf, ..] => Self::LinkLocal,
            _ => Self::Global,
        }
    }
}

/// Reads the type of a GID from the kernel's `devices`.
fn read_type(devices: &Path, device: &str, port: u8, index: u8) -> Type {
    let file = devices.join(device).join(format!("ports/{port}/gid_attrs/types/{index}"));
    match std::fs::read_to_string(file).as_deref().map(str::trim) {
        Ok("RoCE v2") => Type::RoceV2,
        Ok(_) => Type::RoceV1,
        Err(_) => Type::Unknown,
    }
}

/// Reads the GID of an Ethernet or InfiniBand port at an index.
///
/// # Errors
///
/// `NotFound`: no GID is set at this index.
pub(crate) fn query(verbs: &Verbs, context: Handle<ibv_context>, port: u8, index: u8) -> Result<ibv_gid> {
    let mut gid = ibv_gid::default();
    // SAFETY: the device is open, and the variable has room for a GID.
    let code = unsafe { (verbs.ibv_query_gid)(context.as_ptr(), port, index.into(), &raw mut gid) };
    // The lower half is the interface id, which is never 0.
    let set = code == 0 && gid.raw[8..] != [0; 8];
    if set { Ok(gid) } else { Err(missing(port, Some(index))) }
}

/// Chooses a GID. RoCE v2 is preferred to v1, IPv4 addresses to IPv6 addresses, and global ones to link-local
/// ones. Among equal GIDs, the first is chosen.
pub(crate) fn choose(
    devices: &Path,
    device: &str,
    port: u8,
    set: impl Iterator<Item = (u8, ibv_gid)>,
) -> Result<(u8, ibv_gid)> {
    set.min_by_key(|(index, gid)| (read_type(devices, device, port, *index), Scope::of(gid)))
        .ok_or_else(|| missing(port, None))
}

fn missing(port: u8, index: Option<u8>) -> Error {
    let what = index.map_or_else(|| "no GID".to_owned(), |index| format!("no GID at index {index}"));
    error(ErrorKind::NotFound, format!("port {port} has {what}")).with_hint(
        "give the network interface an address and set it up (`ip link set DEV up`); `ibv_devinfo -v` lists the GIDs",
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// Returns the index of the GID that is chosen from a table of addresses and types.
    fn chosen(table: &[(&str, Option<&str>)]) -> Option<u8> {
        let devices = tempfile::tempdir().unwrap();
        let types = devices.path().join("rxe0/ports/2/gid_attrs/types");
        std::fs::create_dir_all(&types).unwrap();
        let mut set = Vec::new();
        for (index, (address, kind)) in (0..).zip(table) {
            set.push((index, ibv_gid { raw: address.parse::<Ipv6Addr>().unwrap().octets() }));
            if let Some(kind) = kind {
                std::fs::write(types.join(index.to_string()), format!("{kind}\n")).unwrap();
            }
        }
        let gids = set.clone();
        let (index, gid) = choose(devices.path(), "rxe0", 2, set.into_iter()).ok()?;
        assert_eq!(gid, gids[usize::from(index)].1);
        Some(index)
    }

    #[test]
    fn the_best_gid_is_chosen_by_type_and_address() {
        let (v1, v2) = (Some("IB/RoCE v1"), Some("RoCE v2"));
        let (local, ipv4, global) = ("fe80::5054:ff:fe00:1", "::ffff:10.0.0.1", "2001:db8::1");
        // Soft-RoCE, as Linux 6.1 lists it.
        assert_eq!(chosen(&[(local, v2), (ipv4, v2)]), Some(1));
        // ConnectX, which lists each address with both types.
        assert_eq!(
            chosen(&[(local, v1), (local, v2), (global, v1), (global, v2), (ipv4, v1), (ipv4, v2)]),
            Some(5)
        );
        assert_eq!(chosen(&[(local, v1), (local, v2), (global, v1), (global, v2)]), Some(3));
        assert_eq!(chosen(&[(local, v1), (local, v2)]), Some(1));
        assert_eq!(
            chosen(&[(ipv4, v1), (local, v2)]),
            Some(1),
            "a type that software devices lack is the last choice"
        );
        assert_eq!(chosen(&[(local, v1), (ipv4, v1)]), Some(1));
        // The kernel does not report the type.
        assert_eq!(chosen(&[(local, None), (ipv4, None), (ipv4, None)]), Some(1), "the first of equal GIDs");
        assert_eq!(chosen(&[("febf::1", v2), ("fec0::1", v2)]), Some(1), "fe80::/10 is link-local");
        assert_eq!(chosen(&[]), None);
    }
}
