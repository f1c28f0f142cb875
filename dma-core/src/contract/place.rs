//! [`Place`]: the host or the device.

use std::fmt;

/// The place of memory: the host or the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Main memory, which the CPU reads and writes.
    #[default]
    Host,
    /// The device's own memory, such as a GPU's memory. The CPU may not be able to reach it. The memory is a
    /// [`Window`](crate::Window), and DMA operations read and write its bytes.
    Device,
}

impl Place {
    /// All places.
    pub const ALL: [Self; 2] = [Self::Host, Self::Device];
}

impl fmt::Display for Place {
    /// Writes `host` or `device`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Device => "device",
        })
    }
}
