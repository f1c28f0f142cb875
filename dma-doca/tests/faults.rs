//! Every fault of a device, as a user of the engine sees it.

#[path = "support/calls.rs"]
mod calls;

use std::time::Duration;

use calls::{engine, try_engine};
use dma_core::{
    Access, BufferMut, DmaEngine, DmaEngineExt, ErrorKind, ExportDescriptor, HostMemory, MemoryRequest,
    Queue, QueueOptions, Retry,
};
use dma_doca::{DocaEngine, DocaOptions};

/// Configurations of a card whose copies take no time, and of a card whose copies take time.
fn configs(faults: &str) -> [String; 2] {
    let faults = format!("faults = \"{faults}\"\norder = \"submitted\"\n");
    [faults.clone(), format!("{faults}profile = \"bluefield3\"\nclock = \"virtual\"\n")]
}

fn queue(engine: &DocaEngine) -> Queue {
    let options = QueueOptions::new()
        .with_depth(16)
        .with_stall_timeout(Duration::from_millis(200))
        .with_drop_timeout(Duration::from_millis(200));
    engine.open_queue(&options).unwrap()
}

fn pair(engine: &DocaEngine, n: u8) -> (BufferMut, BufferMut) {
    let mut src = engine.allocate(256).unwrap();
    src.fill(n);
    (src, engine.allocate(256).unwrap())
}

/// Submits `count` copies at once, and returns their outcomes.
fn outcomes(engine: &DocaEngine, queue: &Queue, count: u8) -> Vec<Result<(), (ErrorKind, i32)>> {
    let transfers: Vec<_> = (0..count)
        .map(|n| {
            let (src, dst) = pair(engine, n);
            queue.copy(src, dst).unwrap()
        })
        .collect();
    queue.flush();
    transfers
        .into_iter()
        .map(|transfer| match transfer.wait() {
            Ok((src, dst)) => {
                assert!(src[..] == dst[..]);
                Ok(())
            }
            Err(e) => {
                let e = dma_core::Error::from(e);
                let code = e.native().map_or(0, |native| native.code);
                if e.kind() == ErrorKind::Aborted {
                    assert_eq!(e.retry(), Retry::Now);
                }
                Err((e.kind(), code))
            }
        })
        .collect()
}

fn works(engine: &DocaEngine, queue: &Queue) {
    assert_eq!(outcomes(engine, queue, 5), [Ok(()); 5]);
}

const IO_FAILED: i32 = 17;

#[test]
fn the_task_that_failed_is_told_from_those_that_were_flushed() {
    for fault in ["fail@3", "reset@3"] {
        for config in configs(fault) {
            let engine = engine(&config);
            let queue = queue(&engine);
            let ends = outcomes(&engine, &queue, 5);
            let (failed, flushed) =
                (Err((ErrorKind::DeviceFault, IO_FAILED)), Err((ErrorKind::Aborted, IO_FAILED)));
            assert_eq!(ends, [Ok(()), Ok(()), failed, flushed, flushed], "{config}");
            assert_eq!(queue.counters().resets, 1);
            works(&engine, &queue);
            assert_eq!(queue.counters().resets, 1);
        }
    }
}

#[test]
fn a_reset_that_no_task_caused_aborts_all_and_is_recovered_from() {
    let engine = engine("faults = \"reset@t=1us\"\nprofile = \"bluefield3\"\nclock = \"virtual\"");
    let queue = queue(&engine);
    let ends = outcomes(&engine, &queue, 3);
    assert!(ends.iter().all(|end| matches!(end, Err((ErrorKind::Aborted, _)))), "{ends:?}");
    works(&engine, &queue);
}

#[test]
fn many_resets_are_recovered_from_and_what_is_aborted_can_be_submitted_again() {
    let engine = engine("faults = \"reset@every=7\"\nseed = 3\n");
    let queue = queue(&engine);
    let (mut done, mut failed, mut aborted) = (0, 0, 0);
    for _ in 0..40 {
        for end in outcomes(&engine, &queue, 10) {
            match end {
                Ok(()) => done += 1,
                Err((ErrorKind::Aborted, _)) => aborted += 1,
                Err((ErrorKind::DeviceFault, IO_FAILED)) => failed += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(done + failed + aborted, 400);
    assert!(done > 100 && failed > 20, "{done} {failed} {aborted}");
    assert_eq!(queue.counters().resets, failed);
}

#[test]
fn a_refused_task_goes_in_later() {
    for config in configs("refuse@2-4") {
        let engine = engine(&config);
        works(&engine, &queue(&engine));
    }
}

#[test]
fn a_lost_report_is_a_timeout_and_the_memory_is_kept() {
    for config in configs("lose@2:ch=0") {
        let engine = engine(&config);
        let queue = queue(&engine);
        let (first, lost) = (pair(&engine, 1), pair(&engine, 2));
        let first = queue.copy(first.0, first.1).unwrap();
        let lost = queue.copy(lost.0, lost.1).unwrap();
        queue.flush();
        first.wait().unwrap();
        assert_eq!(lost.wait().unwrap_err().kind(), ErrorKind::TimedOut);
        // Closing the queue stops the context, which ends the task.
        let counters = queue.close(Duration::from_millis(300));
        assert_eq!(counters.in_flight, 0, "{counters:?}");
        works(&engine, &self::queue(&engine));
    }
}

#[test]
fn a_stuck_context_is_taken_down_and_the_device_goes_on() {
    for config in configs("stick@2:ch=0") {
        let engine = engine(&config);
        let queue = queue(&engine);
        assert_eq!(outcomes(&engine, &queue, 1), [Ok(())]);
        let ends = outcomes(&engine, &queue, 3);
        assert_eq!(ends, [Err((ErrorKind::TimedOut, 0)); 3]);
        // Stopping the context ends the tasks, which returns the memory that they use.
        let counters = queue.close(Duration::from_millis(300));
        assert_eq!((counters.in_flight, counters.abandoned), (0, 0), "{counters:?}");
        assert_eq!((counters.completed, counters.failed, counters.aborted), (1, 0, 3), "{counters:?}");
        works(&engine, &self::queue(&engine));
    }
}

#[test]
fn a_lost_device_says_so() {
    for config in configs("gone@3") {
        let engine = engine(&config);
        let queue = queue(&engine);
        let ends = outcomes(&engine, &queue, 5);
        assert!(ends[..2].iter().all(Result::is_ok), "{ends:?}");
        assert!(ends[3..].iter().all(Result::is_err), "{ends:?}");
        let (src, dst) = pair(&engine, 9);
        let e = queue.copy(src, dst).unwrap().wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeviceLost, "{e}");
        // The drop must not hang, and must not leak memory without need.
        drop(queue);
    }
}

#[test]
fn a_wrong_byte_is_the_callers_to_find() {
    let engine = engine("faults = \"corrupt@1\"\n");
    let queue = queue(&engine);
    let (src, dst) = pair(&engine, 7);
    let (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
    assert_eq!(src.iter().zip(dst.iter()).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>(), 1);
}

#[test]
fn a_slow_task_is_waited_for() {
    for config in configs("slow@1:for=20ms") {
        let engine = engine(&config);
        works(&engine, &queue(&engine));
    }
}

#[test]
fn a_full_device_queue_is_waited_for() {
    let engine = engine("queue_depth = 2\nprofile = \"bluefield3\"\nclock = \"virtual\"\n");
    let queue = queue(&engine);
    for _ in 0..5 {
        works(&engine, &queue);
    }
}

#[test]
fn a_memlock_limit_is_named_with_its_remedy() {
    let engine = engine("memlock = \"1M\"\n");
    let kept = engine.allocate(512 << 10).unwrap();
    let e = engine.allocate(1 << 20).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
    assert!(e.to_string().contains("ulimit -l"), "{e}");
    // The stand-in's device refuses to pin this memory. The error names the process's limit only if that
    // limit is too low as well.
    let limit = dma_process::exceeded_memlock(1 << 20);
    assert_eq!(
        (e.limit(), e.to_string().contains("the device or its driver refused")),
        (limit, limit.is_none()),
        "{e}"
    );
    assert_eq!(e.native().unwrap().name, "DOCA_ERROR_NOT_PERMITTED");
    drop(kept);
    engine.allocate(900 << 10).unwrap();
}

#[test]
fn contexts_run_out_and_come_back() {
    let engine = engine("max_contexts = 2\n");
    let held = [queue(&engine), queue(&engine)];
    let e = engine.open_queue(&QueueOptions::new()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::OutOfResources, "{e}");
    assert!(!e.hint().is_empty());
    drop(held);
    works(&engine, &queue(&engine));
}

#[test]
fn many_threads_open_queues_at_once() {
    let engine = engine("create_contention = true\n");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| works(&engine, &queue(&engine))));
        }
    });
}

#[test]
fn devices_are_refused_with_reasons() {
    let open = |config: &str, options: DocaOptions| try_engine(config, options).unwrap_err();
    let at = |address: &str| DocaOptions::new().with_address(address.parse().unwrap());
    let e = open("", at("0000:99:00.0"));
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
    assert!(e.to_string().contains("0000:03:00.0 (p0)"), "{e}");
    let e = open("", at("03:00.0").with_interface("p1"));
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
    let e = open(
        "[[card.function]]\npci = \"0000:03:00.0\"\nside = \"dpu\"\ndma = false\n[card]\n"
            .split("[card]")
            .next()
            .unwrap(),
        at("03:00.0"),
    );
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    assert!(e.hint().contains("BlueField"), "{e}");
    let two = "[[card.function]]\npci = \"0000:03:00.0\"\nside = \"dpu\"\n[[card.function]]\npci = \"0001:03:00.0\"\nside = \"dpu\"\n";
    for address in ["0000:03:00.0", "0001:03:00.0"] {
        let engine = try_engine(two, at(address)).unwrap();
        assert_eq!(engine.info().device, address);
    }
    let engine = try_engine("", DocaOptions::new().with_interface("mlx5_1")).unwrap();
    assert_eq!(engine.info().device, "0000:03:00.1");
    let e = open("max_tasks = 100\n", at("03:00.0").with_depth(101));
    assert_eq!((e.kind(), e.requested(), e.limit()), (ErrorKind::OutOfRange, Some(101), Some(100)), "{e}");
    doca_emu::use_config(Some("nonsense = 1\n")).unwrap_err();
}

#[test]
fn discovery_tells_what_there_is() {
    doca_emu::use_config(Some("max_list_len = 5\n")).unwrap();
    let all = dma_doca::discover_with(&DocaOptions::new().with_library(calls::library())).unwrap();
    assert_eq!(all.len(), 6);
    let dpu = &all[0];
    assert_eq!((dpu.address.as_str(), dpu.interface.as_deref()), ("0000:03:00.0", Some("p0")));
    assert!(dpu.problem.is_none() && dpu.capabilities.dma && dpu.capabilities.import_pci);
    assert_eq!(dpu.capabilities.max_list_len, 5);
    assert!(dpu.representors.iter().any(|r| r.address == "0000:3b:00.0"), "{:?}", dpu.representors);
    let host = all.iter().find(|d| d.address == "0000:3b:00.0").unwrap();
    assert!(host.representors.is_empty() && host.capabilities.export_pci && host.capabilities.import_pci);
    assert_eq!(dpu.engine_name().to_string(), "doca:0000:03:00.0");
}

/// Opens the host's side and the DPU's side of one card.
fn sides(config: &str) -> (DocaEngine, DocaEngine) {
    doca_emu::use_config(Some(config)).unwrap();
    let open = |address: &str| {
        DocaEngine::open(
            &DocaOptions::new().with_address(address.parse().unwrap()).with_library(calls::library()),
        )
        .unwrap()
    };
    (open("3b:00.0"), open("03:00.0"))
}

#[test]
fn a_host_exports_and_its_dpu_imports() {
    let (host, dpu) = sides(
        "card = [{ function = [{ pci = \"03:00.0\", side = \"dpu\" }, \
         { pci = \"3b:00.0\", side = \"host\", import = false }] }]",
    );
    let request = MemoryRequest::new(8192).exportable(Access::READ | Access::WRITE);
    let window = host.allocate_window(&request).unwrap();
    window.write_at(0, &[7; 8192]).unwrap();
    let export = window.slice(4096..8192).export(Access::READ).unwrap();
    assert_eq!(host.import(export.descriptor()).unwrap_err().kind(), ErrorKind::Unsupported);
    let remote = dpu.import(export.descriptor()).unwrap();
    let q = queue(&dpu);
    let (_, got) = q.copy(remote.clone(), dpu.allocate(4096).unwrap()).unwrap().wait().unwrap();
    assert!(got.iter().all(|b| *b == 7));
    // Rights that the descriptor claims, but the exporter did not grant.
    let d = export.descriptor();
    let claimed = ExportDescriptor::new("doca", Access::all(), d.len(), d.native()).unwrap();
    let claimed = dpu.import(&claimed).unwrap();
    let e = q.copy(dpu.allocate(16).unwrap(), claimed.slice(0..16)).unwrap().wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::AccessDenied, "{e}");
    let mut bytes = [0; 16];
    window.read_at(4096, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 16]);
    // Ranges that the descriptor claims, but the exporter did not grant, and then a part of the granted
    // range.
    let (start, blob) = dma_doca::split_native(d.native()).unwrap();
    for (address, len) in [(start - 1, 4096), (start - 4096, 4096), (start, 4097), (start + 4096, 1)] {
        let native = dma_doca::join_native(address, blob);
        let claimed = ExportDescriptor::new("doca", Access::READ, len, &native).unwrap();
        let e = dpu.import(&claimed).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Malformed, "{address:#x} {len}: {e}");
        assert!(!e.hint().is_empty());
    }
    let part =
        ExportDescriptor::new("doca", Access::READ, 4000, &dma_doca::join_native(start + 96, blob)).unwrap();
    let part = dpu.import(&part).unwrap();
    let (_, got) = q.copy(part, dpu.allocate(4000).unwrap()).unwrap().wait().unwrap();
    assert!(got.iter().all(|b| *b == 7));
    // Over PCI, the right to write includes the right to read.
    let e = window.export(Access::WRITE).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    assert!(e.hint().contains("READ and WRITE"), "{e}");
    let damaged =
        ExportDescriptor::new("doca", Access::READ, d.len(), &dma_doca::join_native(start, &blob[1..]))
            .unwrap();
    assert!(!dpu.import(&damaged).unwrap_err().hint().is_empty());
    // The export ends, and the exporter's memory stays usable.
    drop(export);
    let e = q.copy(remote, dpu.allocate(4096).unwrap()).unwrap().wait().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Revoked, "{e}");
    works(&dpu, &q);
    works(&host, &queue(&host));
    drop(window);
}

/// A host cannot copy memory that it exported itself, as a user reported from a BlueField-3.
#[test]
fn a_refused_self_import_names_the_remedy() {
    let (host, dpu) = sides("self_import = false");
    let request = MemoryRequest::new(64).exportable(Access::READ);
    let window = host.allocate_window(&request).unwrap();
    let export = window.export(Access::READ).unwrap();
    let copy = |engine: &DocaEngine| {
        let remote = engine.import(export.descriptor()).unwrap();
        queue(engine).copy(remote, engine.allocate(64).unwrap()).unwrap().wait().map(drop)
    };
    copy(&dpu).unwrap();
    let e = dma_core::Error::from(copy(&host).unwrap_err());
    assert_eq!((e.kind(), e.native().unwrap().code), (ErrorKind::DeviceFault, IO_FAILED));
    assert!(e.to_string().contains("export on one side of the card, and import on the other"), "{e}");
}

#[test]
fn another_cards_export_is_refused() {
    let two = "[[card]]\nserial = \"A\"\n[[card.function]]\npci = \"0000:3b:00.0\"\nside = \"host\"\n\
               [[card]]\nserial = \"B\"\n[[card.function]]\npci = \"0000:03:00.0\"\nside = \"dpu\"\n";
    let (host, dpu) = sides(two);
    let window = host.allocate_window(&MemoryRequest::new(64).exportable(Access::READ)).unwrap();
    let export = window.export(Access::READ).unwrap();
    let e = dpu.import(export.descriptor()).unwrap_err();
    assert!(e.hint().contains("another card"), "{e}");
}

#[test]
fn an_rdma_export_is_made_and_refused_for_dma() {
    let host = try_engine(
        "",
        DocaOptions::new().with_address("3b:00.0".parse().unwrap()).with_export(dma_doca::Fabric::Rdma),
    )
    .unwrap();
    let window = host.allocate_window(&MemoryRequest::new(64).exportable(Access::all())).unwrap();
    let export = window.export(Access::WRITE).unwrap();
    assert!(!export.descriptor().native().is_empty());
    let dpu = DocaEngine::open(
        &DocaOptions::new().with_address("03:00.0".parse().unwrap()).with_library(calls::library()),
    )
    .unwrap();
    // The SDK imports the memory, but DMA cannot access it.
    let remote = dpu.import(export.descriptor()).unwrap();
    let q = queue(&dpu);
    let e = q.copy(dpu.allocate(64).unwrap(), remote).unwrap().wait().unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::DeviceFault | ErrorKind::Unsupported), "{e}");
    works(&dpu, &q);
}

#[test]
fn a_memfd_is_registered_by_its_file() {
    use std::os::fd::OwnedFd;
    let engine = engine("");
    let file = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, &[5; 4096], 0).unwrap();
    rustix::io::pwrite(&file, &[7; 4096], 4096).unwrap();
    // The bytes differ from the file's. So the copied bytes show that the device used the file, from its
    // second page on.
    let memory = HostMemory::from_owner(vec![1_u8; 4096]);
    let other: OwnedFd = file.try_clone().unwrap();
    #[expect(unsafe_code, reason = "declares memory to be a file")]
    // SAFETY: this breaks the contract on purpose. Both the bytes and the file stay as they are until the
    // copy is done, and only this thread accesses them, so the device reads valid bytes in either case.
    let memory = unsafe { memory.with_fd(other, 4096) };
    let buffer = engine.register(memory).unwrap();
    let (_, got) = queue(&engine).copy(buffer, engine.allocate(4096).unwrap()).unwrap().wait().unwrap();
    assert!(got.iter().all(|byte| *byte == 7), "{}", got[0]);
    // The engine registers memory by its address if its file is not a DMA buffer.
    let memory = HostMemory::from_owner(vec![1_u8; 4096]);
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    #[expect(unsafe_code, reason = "declares memory to be a file")]
    // SAFETY: this breaks the contract on purpose. The engine refuses a file that is not a DMA buffer, and
    // registers the bytes, which stay until the region is dropped.
    let memory = unsafe { memory.with_fd(null, 0) };
    let buffer = engine.register(memory).unwrap();
    let (_, got) = queue(&engine).copy(buffer, engine.allocate(4096).unwrap()).unwrap().wait().unwrap();
    assert!(got.iter().all(|byte| *byte == 1), "{}", got[0]);
}

#[test]
fn registered_memory_is_given_back() {
    let engine = engine("");
    let q = queue(&engine);
    let mut src = engine.register(HostMemory::from_owner(vec![0_u8; 1000])).unwrap();
    src.fill(9);
    let (src, dst) = q.copy(src, engine.allocate(1000).unwrap()).unwrap().wait().unwrap();
    assert!(dst.iter().all(|b| *b == 9));
    let region = src.region().clone();
    drop(src);
    let memory = region.deregister().unwrap().unwrap();
    assert_eq!(memory.into_owner::<Vec<u8>>().unwrap(), vec![9; 1000]);
    works(&engine, &q);
}

#[test]
fn a_library_without_optional_calls_still_copies() {
    let absent = [
        "doca_task_submit_ex",
        "doca_ctx_flush_tasks",
        "doca_buf_chain_list",
        "doca_pe_request_notification",
        "doca_dma_cap_get_max_num_tasks",
        "doca_dma_cap_task_memcpy_get_max_buf_list_len",
        "doca_mmap_create_from_export",
        "doca_mmap_export_pci",
        "doca_devinfo_get_iface_name",
        "doca_buf_inventory_expand",
    ];
    doca_emu::use_config(Some("max_list_len = 4\n")).unwrap();
    let options = DocaOptions::new().with_library(calls::library_without(&absent));
    let engine = DocaEngine::open(&options).unwrap();
    let info = engine.info();
    use dma_core::Capabilities;
    assert!(!info.capabilities.intersects(Capabilities::EXPORT | Capabilities::IMPORT));
    assert!(engine.open_queue_raw(&QueueOptions::new()).unwrap().events().is_none());
    assert_eq!(info.limits.max_segments, 1);
    dma_conformance::run_all(&engine);
    // Copies run one at a time, so that the absent call affects only one copy.
    for name in absent {
        let options = DocaOptions::new().with_library(calls::library_without(&[name]));
        let engine = DocaEngine::open(&options).unwrap();
        assert_eq!(engine.info().limits.max_segments == 1, name.contains("list"), "{name}");
        works(&engine, &queue(&engine));
    }
}

/// A reset that names no faulty task cannot be told apart from a stop by a task. At every second such reset,
/// the first task is reported as failed.
#[test]
fn of_two_resets_that_no_task_is_named_for_the_second_is_a_failure() {
    let engine =
        engine("faults = \"reset@t=1us+reset@t=200us\"\nprofile = \"bluefield3\"\nclock = \"virtual\"");
    let queue = queue(&engine);
    let ends: Vec<_> = (0..200).flat_map(|_| outcomes(&engine, &queue, 3)).filter_map(Result::err).collect();
    assert_eq!(queue.counters().resets, 2);
    assert!(ends[..3].iter().all(|(kind, _)| *kind == ErrorKind::Aborted), "{ends:?}");
    let failed = ends[3..].iter().filter(|(kind, _)| *kind == ErrorKind::DeviceFault).count();
    assert_eq!(failed, 1, "{ends:?}");
}

/// A map cannot be destroyed before its buffers are released: its memory would stay registered.
#[test]
fn regions_that_were_copied_are_deregistered_when_they_are_dropped() {
    let engine = engine("memlock = \"1M\"\nmax_list_len = 4\n");
    let q = queue(&engine);
    const LEN: usize = 200 << 10;
    for round in 0..20 {
        let make = || engine.allocate(LEN).unwrap();
        let (mut a, mut b, c, d) = (make(), make(), make(), make());
        let (tail, end) = (a.split_off(100), b.split_off(999));
        let (sources, targets) = q.copy(vec![a, tail], vec![b, end]).unwrap().wait().unwrap();
        let (c, d) = q.copy(c, d).unwrap().wait().unwrap();
        if round % 2 == 0 {
            drop((sources, c));
            drop((targets, d));
        } else {
            // Drop transfers that are in flight.
            drop(q.copy(c, d).unwrap());
            drop(q.copy(sources, targets).unwrap());
            q.flush();
            while q.counters().in_flight > 0 {
                q.poll();
            }
        }
    }
}

#[test]
fn a_queue_does_with_few_buffers() {
    doca_emu::use_config(Some("max_list_len = 8\n")).unwrap();
    let library = calls::library_without(&["doca_buf_inventory_expand"]);
    let engine = DocaEngine::open(&DocaOptions::new().with_library(library)).unwrap();
    let q = engine.open_queue(&QueueOptions::new().with_depth(4)).unwrap();
    // Use more regions than the queue has buffers, one after the other.
    let mut pairs: Vec<_> = (0..40).map(|n| pair(&engine, n)).collect();
    for _ in 0..2 {
        pairs = pairs.into_iter().map(|(src, dst)| q.copy(src, dst).unwrap().wait().unwrap()).collect();
    }
    // The lists need more buffers together than the queue has.
    let mut lists: Vec<_> = (0..4)
        .map(|_| {
            let (src, dst): (Vec<_>, Vec<_>) = pairs.drain(..8).unzip();
            (src, dst)
        })
        .collect();
    for _ in 0..20 {
        let flights: Vec<_> = lists.drain(..).map(|(src, dst)| q.copy(src, dst).unwrap()).collect();
        q.flush();
        lists = flights.into_iter().map(|flight| flight.wait().unwrap()).collect();
    }
    for (src, dst) in lists.iter().flat_map(|(src, dst)| src.iter().zip(dst)) {
        assert!(src[..] == dst[..]);
    }
    let (src, dst) = pairs.pop().unwrap();
    q.copy(src, dst).unwrap().wait().unwrap();
}
