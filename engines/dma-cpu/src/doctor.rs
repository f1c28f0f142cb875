//! Findings about settings that slow down CPU copies.

use std::fs;

use dma_core::Finding;

pub(crate) fn findings() -> Vec<Finding> {
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut findings = vec![of_cpus(cpus)];
    findings.extend(governor.map(of_governor));
    findings.push(of_huge_pages(pages.as_deref()));
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn of_cpus(cpus: usize) -> Finding {
    if cpus > 1 {
        Finding::ok("CPUs", format!("{cpus}: one submits and polls, the others help with long copies"))
    } else {
        Finding::warning(
            "CPUs",
            "1: no other CPU can help with long copies",
            "give the process more CPUs (taskset, cgroup), if the machine has more",
        )
    }
}

fn of_governor(governor: String) -> Finding {
    if governor == "performance" {
        return Finding::ok("frequency governor", governor);
    }
    Finding::warning(
        "frequency governor",
        format!("{governor}: figures depend on the earlier load"),
        "run `cpupower frequency-set -g performance` before measuring",
    )
}

fn of_huge_pages(setting: Option<&str>) -> Finding {
    let what = "transparent huge pages";
    match setting {
        Some(setting) if setting.contains("[never]") => Finding::warning(
            what,
            "off",
            "`echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`",
        ),
        setting => Finding::ok(what, setting.unwrap_or("not known")),
    }
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict::{Ok, Warning};

    use super::*;

    #[test]
    fn causes_of_slow_copies_are_warnings() {
        assert_eq!([of_cpus(1).verdict, of_cpus(2).verdict], [Warning, Ok]);
        let governors = ["powersave", "performance"].map(|name| of_governor(name.to_owned()).verdict);
        assert_eq!(governors, [Warning, Ok]);
        let settings = [Some("always madvise [never]"), Some("[always] madvise never"), None];
        assert_eq!(settings.map(|setting| of_huge_pages(setting).verdict), [Warning, Ok, Ok]);
    }
}
