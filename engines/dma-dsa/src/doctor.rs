//! Diagnosis of the requirements of DSA engines: driver, work queues, rights.

use dma_core::{Error, Finding};

use crate::DsaOptions;
use crate::device::{self, WorkQueue};

pub(crate) fn findings(options: &DsaOptions) -> Vec<Finding> {
    let driver = "DSA driver";
    let names = match device::names(options) {
        Ok(names) => names,
        Err(error) => return vec![bad(driver, &error), instructions(), dma_vendor::host::iommu()],
    };
    let mut findings = vec![Finding::ok(driver, format!("idxd, {} work queues", names.len()))];
    findings.extend(names.iter().map(|name| work_queue(options, name)));
    findings.extend([instructions(), dma_vendor::host::iommu()]);
    findings
}

fn bad(what: impl Into<String>, error: &Error) -> Finding {
    Finding::bad(what, error.message().to_owned(), error.hint().to_owned())
}

fn work_queue(options: &DsaOptions, name: &str) -> Finding {
    let what = format!("DSA work queue {name}");
    let opened = WorkQueue::read(options, name).and_then(|wq| Ok((wq.open(options)?, wq)));
    let (portal, wq) = match opened {
        Ok(opened) => opened,
        Err(error) => return bad(what, &error),
    };
    let mode = if wq.shared { "shared" } else { "dedicated" };
    let found = format!("{mode}, {} entries, by {}", wq.size, portal.name());
    if !portal.takes_batches() {
        return Finding::warning(
            what,
            found,
            "the kernel maps the work queue only with CAP_SYS_RAWIO on this device: without it, each doorbell is a system call and there are no batches",
        );
    }
    if !wq.block_on_fault {
        return Finding::warning(
            what,
            format!("{found}, without block_on_fault"),
            format!(
                "this process handles page faults of the device: to let the device wait instead, `accel-config disable-wq {0}/{name}`, \
                 `accel-config config-wq {0}/{name} --block-on-fault=1`, `accel-config enable-wq {0}/{name}` (as root)",
                wq.device
            ),
        );
    }
    Finding::ok(what, found)
}

fn instructions() -> Finding {
    let what = "instruction MOVDIR64B";
    if device::has_instructions() {
        Finding::ok(what, "the processor has it")
    } else {
        Finding::warning(what, "the processor lacks it", "DSA is in Xeon processors from Sapphire Rapids on")
    }
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict::{Bad, Ok, Warning};

    use super::*;
    use crate::device::tests::tree;

    #[test]
    fn each_work_queue_has_a_verdict() {
        for (change, verdict, says) in [
            (("wq0.0/block_on_fault", "1"), Ok, ""),
            (("wq0.0/block_on_fault", "0"), Warning, "--block-on-fault=1"),
            (("wq0.0/state", "disabled"), Bad, "accel-config enable-wq"),
        ] {
            let (_root, options) = tree(&[change]);
            let found = findings(&options);
            assert_eq!(found[0].verdict, Ok, "{found:?}");
            assert_eq!(found[1].what, "DSA work queue wq0.0");
            assert_eq!(found[1].verdict, verdict, "{found:?}");
            assert!(found[1].fix.contains(says), "{found:?}");
        }
        let found = findings(&DsaOptions::new().with_sysfs_dir("/nowhere"));
        assert_eq!(found[0].verdict, Bad);
    }
}
