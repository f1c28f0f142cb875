//! [`Release`]: the release of an SPDK.

use std::fmt;

/// The release of an SPDK, as the number in the name of its env library (the SONAME) identifies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release(Option<u32>);

/// The versions of DPDK from 22.11 on that SPDK accepts: year and month, the last accepted patch level, and
/// the number of the first env library that accepts the version. Source: `dpdk_pci_init` in SPDK's
/// `lib/env_dpdk/pci_dpdk.c`, by release tag.
const DPDK: [((u32, u32), u32, u32); 12] = [
    ((22, 11), 1, 12),
    ((22, 11), 4, 13),
    ((23, 3), 0, 12),
    ((23, 7), 0, 12),
    ((23, 11), 0, 13),
    ((24, 3), 0, 14),
    ((24, 7), 0, 15),
    ((24, 11), 2, 15),
    ((25, 3), 0, 15),
    ((25, 7), 0, 16),
    ((25, 11), 0, 16),
    ((26, 3), 0, 17),
];

impl Release {
    /// The oldest usable release: 23.05.
    pub(crate) const LEAST: u32 = 12;
    /// The latest release whose requirements are known: 26.05.
    const LATEST: u32 = 17;
    /// The first release whose `spdk_env_opts` has `no_huge`: 24.01.
    pub(crate) const HAS_NO_HUGE: u32 = 13;

    /// Returns the release of the env library that has this number after `.so`.
    #[must_use]
    pub const fn of_soname(soname: Option<u32>) -> Self {
        Self(soname)
    }

    /// Returns true if SPDK of this release accepts a version of DPDK, such as `DPDK 22.11.11`. `None` for
    /// later releases of SPDK and for development versions of DPDK, because their requirements are unknown.
    #[must_use]
    pub fn accepts(self, dpdk: &str) -> Option<bool> {
        let known = Self::LEAST..=Self::LATEST;
        let soname = self.0.filter(|soname| known.contains(soname))?;
        let mut numbers = dpdk.strip_prefix("DPDK ")?.split('.').map(str::parse::<u32>);
        let (Some(Ok(year)), Some(Ok(month)), Some(Ok(patch)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        else {
            return None;
        };
        if (year, month) < (22, 11) {
            return Some(soname == Self::LEAST || (year, month) >= (21, 11));
        }
        let accepted =
            |(of, last, since): &(_, u32, u32)| *of == (year, month) && patch <= *last && soname >= *since;
        Some(DPDK.iter().any(accepted))
    }

    /// Returns the number after `.so` of the env library, if it is known.
    #[must_use]
    pub const fn soname(self) -> Option<u32> {
        self.0
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `SO_VER` in SPDK's `lib/env_dpdk/Makefile`, by release tag.
        match self.0 {
            None => f.write_str("of unknown release"),
            Some(n @ ..Self::LEAST) => write!(f, "before 23.05 (env library {n})"),
            Some(12) => f.write_str("23.05 to 23.09"),
            Some(13) => f.write_str("24.01"),
            Some(14) => f.write_str("24.05"),
            Some(15) => f.write_str("24.09 to 25.05"),
            Some(16) => f.write_str("25.09 to 26.01"),
            Some(17) => f.write_str("26.05"),
            Some(n) => write!(f, "after 26.05 (env library {n})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_dpdk_are_accepted_as_by_spdk() {
        let of = |soname, dpdk| Release::of_soname(Some(soname)).accepts(dpdk);
        for (soname, dpdk, accepted) in [
            (12, "DPDK 20.11.0", true),
            (12, "DPDK 22.11.1", true),
            (12, "DPDK 22.11.2", false),
            (13, "DPDK 20.11.0", false),
            (13, "DPDK 21.11.9", true),
            (13, "DPDK 22.07.3", true),
            (13, "DPDK 22.11.4", true),
            (13, "DPDK 24.03.0", false),
            (15, "DPDK 24.11.2", true),
            (15, "DPDK 24.11.3", false),
            (17, "DPDK 22.11.11", false),
            (17, "DPDK 26.03.0", true),
            (17, "DPDK 27.03.0", false),
        ] {
            assert_eq!(of(soname, dpdk), Some(accepted), "{soname}, {dpdk}");
        }
        for (soname, dpdk) in [(18, "DPDK 22.11.11"), (17, "DPDK 26.07.0-rc1"), (17, "26.03.0"), (17, "")] {
            assert_eq!(of(soname, dpdk), None, "{soname}, {dpdk}");
        }
        assert_eq!(Release::of_soname(None).accepts("DPDK 22.11.11"), None);
    }
}
