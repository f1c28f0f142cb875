//! Translation of the driver's results.

use std::borrow::Cow;
use std::ffi::c_int;

use dma_core::{Error, ErrorKind};
use dma_vendor::LoadError;

/// The backend's name in errors and engine names.
pub(crate) const NAME: &str = "cuda";

/// `CUDA_ERROR_NOT_READY`: work is still in progress; this is not a failure.
pub(crate) const NOT_READY: c_int = 600;
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_NOT_INITIALIZED`: in a child of the process that called `cuInit`.
pub(crate) const NOT_INITIALIZED: c_int = 3;
/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: c_int = 100;
/// `CUDA_ERROR_ALREADY_REGISTERED`.
pub(crate) const ALREADY_REGISTERED: c_int = 712;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: c_int = 801;

/// Returns true for a result after which no later call of the context succeeds.
///
/// According to NVIDIA's reference, after 700, 702, 709, 710, 714 to 719 and 721 the process has to end
/// before CUDA can be used again, and 214, 220 and 226 mean that the device's memory or link is faulty. The
/// driver returns 3 in a child of the process, 4 while the process ends, 201 after other code has destroyed
/// the context, and 46 and 999 when the device is gone.
pub(crate) const fn is_final(code: c_int) -> bool {
    matches!(code, 3 | 4 | 46 | 101 | 201 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
}

/// Returns the kind of a failure.
pub(crate) const fn kind(code: c_int) -> ErrorKind {
    match code {
        _ if is_final(code) => ErrorKind::DeviceLost,
        INVALID_VALUE | 400 => ErrorKind::InvalidArgument,
        OUT_OF_MEMORY => ErrorKind::OutOfMemory,
        34 | 35 | 803 | 804 => ErrorKind::MissingSdk,
        NO_DEVICE => ErrorKind::NotFound,
        304 => ErrorKind::Os,
        ALREADY_REGISTERED => ErrorKind::InUse,
        800 => ErrorKind::PermissionDenied,
        NOT_SUPPORTED => ErrorKind::Unsupported,
        _ => ErrorKind::DeviceFault,
    }
}

/// Returns the remedy for a result, which is the same for all calls.
pub(crate) const fn hint(code: c_int) -> &'static str {
    match code {
        NOT_INITIALIZED => {
            "CUDA works only in the process that initialized it: after a fork, start a new program, or open the engine only in \
             the child"
        }
        4 => "the process is ending: drop queues before it ends",
        OUT_OF_MEMORY => {
            "ask for less, or free some memory; `nvidia-smi` shows which processes use device memory"
        }
        34 | 35 => {
            "this library is only a stub for linking, or older than the device: install the driver, or mount its library into the container"
        }
        46 | 999 => {
            "see `dmesg | grep NVRM` and `nvidia-smi`; a device that fell off its bus needs a reset or a restart"
        }
        NO_DEVICE => {
            "see `nvidia-smi -L`; in a container, pass the device (`docker run --gpus all`); CUDA_VISIBLE_DEVICES may hide it"
        }
        214 | 220 | 226 => "see `nvidia-smi -q -d ECC`: the memory or link of the device is faulty",
        802 => "start the service `nvidia-fabricmanager`, which this machine's switches need",
        803 | 804 => {
            "the library and the kernel's module have different versions: load the module of the installed driver, or \
             restart; in a container, use the host's library"
        }
        _ if is_final(code) => {
            "an earlier failure on the device, perhaps of a kernel of the program, ended its context for this \
             process: start the program again"
        }
        _ => "see `nvidia-smi` and `dmesg | grep NVRM`",
    }
}

/// Returns the error for a library that cannot be loaded.
pub(crate) fn load(cause: LoadError) -> Error {
    error(ErrorKind::MissingSdk, cause.to_string())
        .with_hint(cause.remedy(&crate::library::CUDA))
        .with_source(cause)
}

/// Makes an error of this backend.
pub(crate) fn error(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).with_backend(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_kinds_and_remedies() {
        for (code, expected) in [
            (1, ErrorKind::InvalidArgument),
            (2, ErrorKind::OutOfMemory),
            (3, ErrorKind::DeviceLost),
            (100, ErrorKind::NotFound),
            (214, ErrorKind::DeviceLost),
            (700, ErrorKind::DeviceLost),
            (712, ErrorKind::InUse),
            (719, ErrorKind::DeviceLost),
            (801, ErrorKind::Unsupported),
            (803, ErrorKind::MissingSdk),
            (900, ErrorKind::DeviceFault),
        ] {
            assert_eq!(kind(code), expected, "{code}");
            assert!(!hint(code).is_empty());
        }
        assert!(!is_final(NOT_READY) && !is_final(ALREADY_REGISTERED));
    }
}
