//! Tests of the engine on work queues of the stand-in that the kernel does not map, so that descriptors are
//! submitted by `write()`. The stand-in cannot intercept system calls of this process, so a portal of the
//! tests forwards the descriptors.
#![expect(unsafe_code, reason = "passes descriptors with addresses to the stand-in")]

use std::sync::Arc;

use dma_core::{DmaEngine, DmaEngineExt, ErrorKind, QueueOptions};
use dsa_emu::Emu;
use proptest::prelude::*;
use rustix::io::Errno;

use super::script;
use crate::device::WorkQueue;
use crate::portal::Portal;
use crate::{DsaEngine, DsaOptions};
use dsa_sys::HwDescriptor;

#[derive(Debug)]
struct Passed(Arc<Emu>);

impl Portal for Passed {
    unsafe fn submit(&self, descriptors: &[HwDescriptor]) -> Result<usize, Errno> {
        let len = size_of_val(descriptors);
        // SAFETY: descriptors are plain bytes without padding.
        let bytes = unsafe { std::slice::from_raw_parts(descriptors.as_ptr().cast::<u8>(), len) };
        // SAFETY: the descriptors are forwarded, and the caller meets the requirements of `submit`.
        match unsafe { self.0.write("wq0.0", bytes) } {
            Ok(written) => Ok(written / size_of::<HwDescriptor>()),
            Err(Errno::AGAIN) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    fn takes_batches(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "write()"
    }
}

fn open(config: &str) -> (Arc<Emu>, DsaEngine) {
    let emu = Arc::new(Emu::start(&format!("mmap = false\n{config}")).unwrap());
    let options = DsaOptions::new().with_sysfs_dir(emu.sysfs_dir());
    let wq = WorkQueue::read(&options, "wq0.0").unwrap();
    let engine = DsaEngine::on(wq, Box::new(Passed(Arc::clone(&emu))), &options).unwrap();
    (emu, engine)
}

#[test]
fn conforms_by_write() {
    for config in ["page_faults = 0.2", "mode = 'shared'\nsize = 3\nfaults = 'refuse:p=0.3'"] {
        let (emu, engine) = open(config);
        dma_conformance::run_all(&engine);
        assert!(emu.submissions("wq0.0") > 100, "the descriptors did not go to the stand-in");
    }
}

#[test]
fn a_work_queue_that_is_disabled_refuses_to_be_written() {
    let (emu, engine) = open("");
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    assert!(emu.disable("wq0.0"));
    let (src, dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    let error = queue.copy(src, dst).unwrap().wait().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::DeviceLost, "{error}");
    assert_eq!(error.error().native().unwrap().name, "ENODEV");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_leave_the_right_bytes_by_write(
        program in script::programs(false),
        depth in 1..20_usize,
        (shared, size, faults) in (any::<bool>(), 1..20_u32, 0..4_u32),
    ) {
        let mode = if shared { "shared" } else { "dedicated" };
        let (_emu, engine) = open(&format!(
            "mode = '{mode}'\nsize = {size}\nmax_transfer = 20000\npage_faults = 0.{faults}\n\
             faults = 'refuse:p=0.{faults}'"
        ));
        script::run(&engine, depth.min(engine.info().limits.max_queue_depth), true, &program, |_| ());
    }
}
