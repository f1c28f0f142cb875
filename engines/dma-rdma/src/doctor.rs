//! Diagnosis of the requirements of RDMA engines: library, devices, limit of pinned memory, forks.

use dma_core::{Error, Finding};
use dma_vendor::LibraryReport;

use crate::device::{self, Device};
use crate::library::{self, RDMA_CORE};
use crate::options::RdmaOptions;
use crate::verbs::Verbs;

/// Minimum limit of pinned memory, in bytes.
const LEAST: u64 = 64 << 20;
const INSTALL: &str = "install libibverbs of rdma-core: `apt install libibverbs1 ibverbs-providers`";

pub(crate) fn findings() -> Vec<Finding> {
    let outcome = library::open(None);
    let mut findings = LibraryReport::of(&RDMA_CORE, INSTALL, outcome.as_ref().err()).needed();
    if let Ok(verbs) = outcome {
        findings.extend(of_devices(&verbs));
        findings.extend(fork(device::is_fork_safe(&verbs)));
    }
    findings.push(dma_vendor::host::memlock(LEAST));
    findings
}

pub(crate) fn of_devices(verbs: &Verbs) -> Vec<Finding> {
    let bad =
        |what: String, error: &Error| Finding::bad(what, error.message().to_owned(), error.hint().to_owned());
    let names = match device::names(verbs) {
        Ok(names) if !names.is_empty() => names,
        _ => {
            let none = Device::open(verbs, &RdmaOptions::new()).err();
            return none.iter().map(|error| bad("RDMA device".to_owned(), error)).collect();
        }
    };
    let one = |name: String| {
        let what = format!("RDMA device {name}");
        match Device::open(verbs, &RdmaOptions::new().with_device(name)) {
            Ok(device) => Finding::ok(what, format!("port {} is active", device.port.number)),
            Err(error) => bad(what, &error),
        }
    };
    names.into_iter().map(one).collect()
}

/// `None` if the library cannot tell: then it is older than 2020, and so the kernel usually is as well.
fn fork(safe: Option<bool>) -> Option<Finding> {
    let what = "forks of a process with RDMA memory";
    match safe {
        Some(true) => Some(Finding::ok(what, "do not affect pinned pages")),
        Some(false) => Some(Finding::warning(
            what,
            "the kernel is older than 5.12: a write after a fork can move a page away from the device",
            "set RDMAV_FORK_SAFE=1 in the environment of programs that start others, or update the kernel",
        )),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict::{Bad, Ok, Warning};

    use super::*;
    use rdma_emu::Nic;

    #[test]
    fn each_device_has_a_verdict() {
        let nic = Nic::default();
        let found = of_devices(&nic.verbs());
        assert_eq!((found[0].verdict, found[0].what.as_str()), (Ok, "RDMA device emu0"), "{found:?}");
        nic.state().port_down = true;
        let found = of_devices(&nic.verbs());
        assert_eq!(found[0].verdict, Bad, "{found:?}");
        assert!(found[0].fix.contains("ip link set"), "{found:?}");
        nic.state().devices = 0;
        let found = of_devices(&nic.verbs());
        assert_eq!((found[0].verdict, found.len()), (Bad, 1), "{found:?}");
        assert!(found[0].fix.contains("rxe"), "{found:?}");
    }

    #[test]
    fn forks_have_a_verdict() {
        assert_eq!(fork(Some(true)).unwrap().verdict, Ok);
        assert_eq!(fork(Some(false)).unwrap().verdict, Warning);
        assert!(fork(None).is_none());
    }
}
