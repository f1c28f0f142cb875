//! The memory that kernels reach, their failures and their progress, as the device sees them.

/// A range of memory that the device reaches, and the address of its bytes in this process.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Address in this process of the byte at `start`.
    pub bytes: u64,
    /// True if kernels may write to it.
    pub is_writable: bool,
    /// True for memory of the host, false for memory of a device.
    pub is_host: bool,
}

/// The memory that kernels of one context reach.
pub trait GlobalMemory {
    /// Returns the range that contains an address.
    fn find(&self, addr: u64) -> Option<Mapped>;
}

/// The failure of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Kind of the failure.
    pub kind: TrapKind,
    /// The kernel, the line, the thread, and what failed.
    pub message: String,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapKind {
    /// An access to memory that the kernel does not reach.
    IllegalAddress,
    /// An access at an address that is not a multiple of its length.
    Misaligned,
    /// More nested calls, or more memory of a thread, than the stand-in has.
    StackOverflow,
    /// A failed `assert` of the kernel.
    Assertion,
    /// An instruction that ends the kernel, or one that the device cannot execute.
    Failed,
}

/// Bytes that a kernel has moved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From memory of the host.
    pub from_host: u64,
    /// To memory of the host.
    pub to_host: u64,
    /// From and to memory of devices.
    pub on_device: u64,
}

/// The state of a kernel after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The kernel has used its slice.
    Running,
    /// All blocks have ended.
    Ended,
}
