//! Diagnosis of the requirements of CUDA engines: library, device files, devices, pinned memory.

use std::path::Path;

use dma_core::{Error, ErrorKind, Finding};
use dma_vendor::LibraryReport;

use crate::device::{self, Device};
use crate::driver::Driver;
use crate::library::{self, CUDA};
use crate::options::{CudaDevice, CudaOptions};
use crate::pieces::Ways;

/// Minimum limit of locked memory, in bytes.
const LEAST: u64 = 64 << 20;
const INSTALL: &str = "install NVIDIA's driver: `apt install nvidia-driver` (Debian, non-free), or NVIDIA's own package; \
                       in a container, the NVIDIA Container Toolkit provides the host's library";

pub(crate) fn findings() -> Vec<Finding> {
    let outcome = library::open(None);
    let mut findings = LibraryReport::of(&CUDA, INSTALL, outcome.as_ref().err()).needed();
    findings.extend(files(Path::new("/")));
    if let Ok(driver) = outcome {
        findings.extend(of_devices(&driver));
    }
    findings.push(dma_vendor::host::memlock(LEAST));
    findings
}

/// Checks the kernel's module and its device files below `root`; a container may have one without the other.
fn files(root: &Path) -> Option<Finding> {
    let what = "device files of NVIDIA GPUs";
    let module = root.join("proc/driver/nvidia").exists();
    let control = root.join("dev/nvidiactl").exists();
    let numbers = (0..64).filter(|number| root.join(format!("dev/nvidia{number}")).exists()).count();
    match (module, control && numbers > 0) {
        (_, true) => Some(Finding::ok(what, format!("{numbers}, and /dev/nvidiactl"))),
        (true, false) => Some(Finding::bad(
            what,
            "the kernel has NVIDIA's module, but /dev/nvidiactl or /dev/nvidia0 is missing",
            "in a container, pass the device: `docker run --gpus all` or `--device nvidia.com/gpu=all`; otherwise run \
             `nvidia-modprobe -u -c 0` as root",
        )),
        // If the module is not loaded, the findings on library and devices suffice.
        (false, false) => None,
    }
}

fn of_devices(driver: &Driver) -> Vec<Finding> {
    let bad =
        |what: String, error: &Error| Finding::bad(what, error.message().to_owned(), error.hint().to_owned());
    let number = match device::initialize(driver) {
        Ok((_, number)) => number,
        Err(error) => {
            let what = if error.kind() == ErrorKind::NotFound { "CUDA device" } else { "CUDA" };
            return vec![bad(what.to_owned(), &error)];
        }
    };
    let one = |ordinal: i32| {
        let what = format!("CUDA device {ordinal}");
        let device = CudaDevice::Ordinal(ordinal.unsigned_abs());
        match Device::open(driver, &CudaOptions::new().with_device(device)) {
            Ok(device) => describe(what, &device),
            Err(error) => bad(what, &error),
        }
    };
    let mut findings: Vec<_> = (0..number).map(one).collect();
    findings.push(batches(driver));
    findings.push(kernel(driver));
    findings
}

fn describe(what: String, device: &Device) -> Finding {
    let name = &device.name;
    if name.contains("MIG") {
        let found = format!("{name}: a part of a GPU (MIG)");
        let fix = "a process sees only one part, whatever device number it uses; choose the part by CUDA_VISIBLE_DEVICES=MIG-...";
        return Finding::warning(what, found, fix);
    }
    if !device.registers {
        let fix = "memory of the program cannot be registered: allocate it on the engine";
        return Finding::warning(what, format!("{name} cannot register host memory"), fix);
    }
    Finding::ok(what, name.clone())
}

fn batches(driver: &Driver) -> Finding {
    let what = "many copies in one call";
    if driver.cuMemcpyBatchAsync_v2.is_some() || driver.cuMemcpyBatchAsync.is_some() {
        return Finding::ok(what, "cuMemcpyBatchAsync");
    }
    Finding::warning(
        what,
        "the driver has no cuMemcpyBatchAsync",
        "each small copy is a call: update the driver to 570 or later, which has CUDA 12.8",
    )
}

/// Compiles the copying kernel on the first device.
fn kernel(driver: &Driver) -> Finding {
    let what = "many copies by a kernel";
    let Ok(device) = Device::open(driver, &CudaOptions::new()) else {
        return Finding::warning(
            what,
            "not tried, because the first device cannot be opened",
            "see the device's finding",
        );
    };
    match Ways::new(&device, &CudaOptions::new()).kernel() {
        Ok(_) => Finding::ok(what, "compiled on the first device"),
        Err(error) => {
            let fix = "many small copies are slower: update the driver to 470 or later, on a device of compute capability 7.0 or \
                       later; copies work without the kernel";
            Finding::warning(what, error.to_string(), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict::{Bad, Ok, Warning};

    use super::*;

    #[test]
    fn each_device_has_a_verdict() {
        let gpus = "memory = '16M'\n[[gpu]]\nname = 'A GPU'\n[[gpu]]\nname = 'A GPU MIG 1g.10gb'\n";
        cuda_emu::use_config(gpus).unwrap();
        #[expect(unsafe_code, reason = "uses the stand-in's calls")]
        // SAFETY: the stand-in's functions have the declared types.
        let mut driver = unsafe { Driver::load(cuda_emu::symbol) }.unwrap();
        let found = of_devices(&driver);
        let verdicts: Vec<_> = found.iter().map(|finding| (finding.what.as_str(), finding.verdict)).collect();
        let (batches, kernel) = ("many copies in one call", "many copies by a kernel");
        let expected = [("CUDA device 0", Ok), ("CUDA device 1", Warning), (batches, Ok), (kernel, Ok)];
        assert_eq!(verdicts, expected, "{found:?}");
        assert!(found[1].fix.contains("CUDA_VISIBLE_DEVICES"), "{found:?}");
        driver.cuMemcpyBatchAsync_v2 = None;
        driver.cuMemcpyBatchAsync = None;
        driver.cuLaunchKernel = None;
        let found = of_devices(&driver);
        assert_eq!((found[2].verdict, found[3].verdict), (Warning, Warning), "{found:?}");
        assert!(found[3].found.contains("lacks calls"), "{found:?}");
    }

    #[test]
    fn device_files_have_a_verdict() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(files(root.path()), None);
        std::fs::create_dir_all(root.path().join("proc/driver/nvidia")).unwrap();
        let found = files(root.path()).unwrap();
        assert_eq!(found.verdict, Bad);
        assert!(found.fix.contains("--gpus all"), "{found:?}");
        std::fs::create_dir(root.path().join("dev")).unwrap();
        for file in ["dev/nvidiactl", "dev/nvidia3"] {
            std::fs::write(root.path().join(file), "").unwrap();
        }
        assert_eq!(files(root.path()).unwrap().verdict, Ok);
    }
}
