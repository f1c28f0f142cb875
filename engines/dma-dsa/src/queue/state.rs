//! [`DescriptorState`]: the state of a descriptor in the ring.

/// State of a descriptor, in addition to its 64 bytes and its token. Free places have the default state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DescriptorState {
    /// Number of bytes that earlier parts of a comparison found equal.
    pub(super) base: u64,
    pub(super) kind: ResultKind,
    /// Number of consecutive page faults without progress.
    pub(super) stuck: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ResultKind {
    /// An operation without a result.
    #[default]
    Plain,
    Compare,
    Crc,
    /// A copy to the first of two destinations. The copy to the second follows it.
    First,
}

impl ResultKind {
    pub(super) const fn has_result(self) -> bool {
        matches!(self, Self::Compare | Self::Crc)
    }
}

/// A copy: source, destination and length.
pub(super) type Copy = (u64, u64, u32);
