//! [`Release`]: the release of an SPDK.

use std::fmt;

/// The release of an SPDK, as the number in the name of its env library (the SONAME) identifies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release(Option<u32>);

impl Release {
    /// The oldest that can be used, 23.05.
    pub(crate) const LEAST: u32 = 12;
    /// From this on `spdk_env_opts` has `no_huge`, 24.01.
    pub(crate) const HAS_NO_HUGE: u32 = 13;

    /// The release of an env library with this number behind `.so`, if it has one.
    #[must_use]
    pub const fn of_soname(soname: Option<u32>) -> Self {
        Self(soname)
    }

    /// The number behind `.so` of the env library, if known.
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
