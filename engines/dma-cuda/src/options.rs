//! [`CudaOptions`]: the device, the depth, and the way of many copies.

use std::path::PathBuf;

use dma_core::{ErrorKind, PciAddress, Result};

use crate::error::{NAME, error};

dma_core::options! {
    /// The device to open.
    ///
    /// An engine name, such as `cuda:0,depth=64`, consists of the backend, the device, and options that
    /// [`INFO`](Self::INFO) lists.
    ///
    /// Loading a library runs its code. So names from untrusted sources must not contain `lib`:
    /// `dma::parse_untrusted` refuses it.
    #[derive(Clone, Debug)]
    pub struct CudaOptions {
        /// The device. `None` (the default): the first one.
        pub device: Option<CudaDevice>, with_device(Some(CudaDevice));
        /// The depth of queues that do not choose one, in descriptors. `None` (the default): 1,024.
        pub depth: Option<usize>, with_depth(Some(usize)),
            "depth": number(1..=Self::DEPTH_MAX), "default depth of the engine's queues", default "1024";
        /// The way to submit many copies. Default: [`Pieces::Auto`].
        pub pieces: Pieces, with_pieces(Pieces),
            "pieces": choice(
                "auto" => Pieces::Auto, "batch" => Pieces::Batch, "kernel" => Pieces::Kernel, "loop" => Pieces::Loop
            ),
            "way to submit many copies", default "auto";
        /// Maximum number of multiprocessors that the kernel of [`Pieces`] occupies while it copies, from 1
        /// on. Other kernels of the program get fewer multiprocessors during that time. `None` (the default):
        /// an eighth of the device's.
        pub multiprocessors: Option<u32>, with_multiprocessors(Some(u32)),
            "sms": number(1..=Self::MULTIPROCESSORS_MAX), "multiprocessors that the copying kernel may take",
            default "an eighth of the device's";
        /// The directory of `libcuda.so.1`. `None` (the default): the environment variable
        /// `DMA_CUDA_LIB_DIR`, then the system's directories.
        pub lib_dir: Option<PathBuf>, with_lib_dir(Some(impl Into<PathBuf>)),
            "lib": path("FOLDER"), "folder of libcuda.so.1",
            default "DMA_CUDA_LIB_DIR, then the system's", needs trust;
    }
    names NAME, device device = device,
        "a number or a PCI address, such as 0 or 0000:17:00.0; without one, the first";
}

/// The way to submit copies that are collected until a doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pieces {
    /// The engine learns the fastest way by direction, length and number of the copies, from times that the
    /// device measures. Trials of slower ways add at most 3 % to the time, apart from the first trial of each
    /// way, whose time is not known before.
    /// [`explain`](dma_core::DmaEngine::explain) describes the choices.
    #[default]
    Auto,
    /// `cuMemcpyBatchAsync`, which the copy engines execute. A driver without this call gets one call for
    /// each copy.
    Batch,
    /// A kernel on some multiprocessors of the device ([`CudaOptions::multiprocessors`]). Copies of memory
    /// that belongs to another device or context take the way of `Batch`. If the driver cannot run the
    /// kernel, the engine does not open.
    Kernel,
    /// One call for each copy.
    Loop,
}

impl Pieces {
    /// Returns the word of engine names.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Batch => "batch",
            Self::Kernel => "kernel",
            Self::Loop => "loop",
        }
    }
}

/// A CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaDevice {
    /// The device with this CUDA number, from 0 on. `CUDA_VISIBLE_DEVICES` changes the numbers.
    Ordinal(u32),
    /// The device at this PCI address, such as `0000:17:00.0`.
    Pci(PciAddress),
}

impl std::fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "{ordinal}"),
            Self::Pci(address) => write!(f, "{address}"),
        }
    }
}

impl CudaOptions {
    /// Maximum depth of a queue, in descriptors.
    pub const DEPTH_MAX: usize = 65_536;
    /// The depth of queues that do not choose one, in descriptors.
    pub const DEPTH_DEFAULT: usize = 1_024;
    /// Maximum of [`multiprocessors`](Self::multiprocessors). A number above that of the device means all of
    /// them.
    pub const MULTIPROCESSORS_MAX: u32 = 1_024;
}

/// Reads a device: a number, or a PCI address with or without its domain.
fn device(text: &str) -> Result<CudaDevice> {
    if let Ok(ordinal) = text.parse() {
        return Ok(CudaDevice::Ordinal(ordinal));
    }
    let address = text.parse().map_err(|_| {
        error(ErrorKind::InvalidArgument, format!("`{text}` is neither a number nor a PCI address"))
            .with_hint("write a device as 0 or as 0000:17:00.0 (DDDD:BB:DD.F); `nvidia-smi -L` and `lspci -d 10de:` list them")
    })?;
    Ok(CudaDevice::Pci(address))
}

#[cfg(test)]
mod tests {
    use dma_core::EngineName;

    use super::*;

    fn options(name: &str) -> Result<CudaOptions> {
        CudaOptions::from_name(&name.parse().unwrap())
    }

    #[test]
    fn names_set_every_option() {
        let read = options("cuda:1,depth=64,pieces=kernel,sms=4,lib=/x").unwrap();
        let expected = CudaOptions::new()
            .with_device(CudaDevice::Ordinal(1))
            .with_depth(64)
            .with_pieces(Pieces::Kernel)
            .with_multiprocessors(4)
            .with_lib_dir("/x");
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        let pci = CudaDevice::Pci("0000:17:00.0".parse().unwrap());
        assert_eq!(options("cuda:0000:17:00.0").unwrap().device.as_ref(), Some(&pci));
        assert_eq!(options("cuda:17:00.0,depth=2").unwrap().device.as_ref(), Some(&pci));
        assert_eq!(options("cuda").unwrap().device, None);
    }

    #[test]
    fn bad_options_are_named() {
        for (name, says) in [
            ("cuda:gpu0", "nvidia-smi"),
            ("cuda:-1", "nvidia-smi"),
            ("cuda:0,dept=1", "depth"),
            ("cuda:lib=", "path"),
            ("cuda:pieces=fast", "auto, batch, kernel, loop"),
        ] {
            let error = options(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(says), "{name}: {error}");
        }
        for name in ["cuda:depth=0", "cuda:depth=65537", "cuda:sms=0", "cuda:sms=1025"] {
            assert_eq!(options(name).unwrap_err().kind(), ErrorKind::OutOfRange, "{name}");
        }
    }

    #[test]
    fn libraries_are_for_trusted_names_only() {
        let name: EngineName = "cuda:0,lib=/tmp/x".parse().unwrap();
        let refused = name.refuse_untrusted(CudaOptions::NAME_FORMAT).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    }
}
