//! Host and DPU as two processes: the host exports memory of several kinds, and the DPU imports and
//! copies it.
//!
//! The test is the host. It starts this program again as the DPU, for one test that executes the commands
//! on its standard input.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr;

use rig::{Memory, Rig, c, name};

const ROLE: &str = "DOCA_EMU_TEST_DPU";

/// The process of the DPU.
struct Dpu {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Dpu {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dpu", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    /// Sends a command, and returns the answer.
    fn ask(&mut self, what: &str) -> String {
        writeln!(self.to, "{what}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "the DPU ended");
            // Skip lines that the test harness writes.
            if let Some(at) = line.find("> ") {
                return line[at + 2..].trim_end().to_owned();
            }
        }
    }
}

impl Drop for Dpu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap())
        .collect()
}

fn descriptor(mmap: *mut c::doca_mmap, dev: *mut c::doca_dev) -> Vec<u8> {
    let (mut desc, mut len) = (ptr::null(), 0);
    ok!(doca_mmap_export_pci(mmap, dev, &mut desc, &mut len));
    // SAFETY: the call returned the descriptor's address and length, and the map stays exported.
    unsafe { std::slice::from_raw_parts(desc.cast::<u8>(), len) }.to_vec()
}

/// The DPU's part. Does nothing unless another test starts it as a process.
#[test]
fn dpu() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut rig = Some(Rig::new("side = \"dpu\"", 4));
    let mut remote = ptr::null_mut();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let rig = rig.as_mut().unwrap();
        let answer = match words[0] {
            "import" => {
                let bytes = unhex(words[1]);
                let code = code!(doca_mmap_create_from_export(
                    ptr::null(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    rig.dev,
                    &mut remote,
                ));
                name(code).to_owned()
            }
            "range" => {
                let (mut addr, mut len) = (ptr::null_mut(), 0);
                ok!(doca_mmap_get_memrange(remote, &mut addr, &mut len));
                format!("{:x} {len}", addr.addr())
            }
            // The arguments are an offset and a length in the imported memory, and for `write` also the
            // byte.
            "read" | "write" => {
                let numbers: Vec<_> = words[1..].iter().map(|word| word.parse::<usize>().unwrap()).collect();
                let (mut addr, mut len) = (ptr::null_mut(), 0);
                ok!(doca_mmap_get_memrange(remote, &mut addr, &mut len));
                let at = addr.wrapping_byte_add(numbers[0]);
                let mut there = ptr::null_mut();
                let data_len = if words[0] == "read" { numbers[1] } else { 0 };
                let inventory = rig.inventory;
                let code = code!(doca_buf_inventory_buf_get_by_args(
                    inventory, remote, at, numbers[1], at, data_len, &mut there
                ));
                if code != c::DOCA_SUCCESS {
                    name(code).to_owned()
                } else {
                    if rig.state() == c::DOCA_CTX_STATE_IDLE {
                        ok!(doca_ctx_start(rig.ctx));
                    }
                    let task = match words[0] {
                        "read" => rig.task(there, rig.to(0, numbers[1]), 0),
                        _ => {
                            rig.src.write(0, &vec![numbers[2] as u8; numbers[1]]);
                            rig.task(rig.from(0, numbers[1]), there, 0)
                        }
                    };
                    ok!(doca_task_submit(task));
                    rig.until(1);
                    let status = rig.seen.take()[0].1;
                    rig.free(task);
                    rig.drain();
                    format!("{status} {}", hex(&rig.dst.read(0, numbers[1].min(64))))
                }
            }
            "destroy" => name(code!(doca_mmap_destroy(remote))).to_owned(),
            other => panic!("{other}"),
        };
        println!("> {answer}");
    }
}

#[test]
fn any_memory_of_the_host_is_within_reach_until_its_map_stops() {
    rig::configure("side = \"host\"");
    let dev = rig::open("3b:00.0");
    let mut dpu = Dpu::start();
    let on_stack = [0x5a_u8; 512];
    let on_heap = Memory::new(5 << 20);
    on_heap.write(0, &[0x33; 4096]);
    let access = c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE;

    let mmap = rig::map(dev, &on_heap, access);
    let desc = descriptor(mmap, dev);
    assert_eq!(desc, descriptor(mmap, dev), "the second export returns the same descriptor");
    assert_eq!(get!(doca_mmap_get_exported(mmap)), 1);
    assert_eq!(dpu.ask(&format!("import {}", hex(&desc))), "DOCA_SUCCESS");
    assert_eq!(dpu.ask("range"), format!("{:x} {}", on_heap.ptr.addr(), 5 << 20));
    assert_eq!(dpu.ask("read 4000 64"), format!("DOCA_SUCCESS {}", hex(&on_heap.read(4000, 64))));
    assert!(dpu.ask("write 100003 1000000 165").starts_with("DOCA_SUCCESS"));
    assert_eq!(on_heap.read(100_003, 1_000_000), vec![165; 1_000_000]);
    assert_eq!(on_heap.read(1_100_003, 100), [0; 100]);
    assert_eq!(dpu.ask(&format!("read {} 64", 5 << 20)), "DOCA_ERROR_INVALID_VALUE");

    // The host revokes the export.
    ok!(doca_mmap_stop(mmap));
    assert_eq!(get!(doca_mmap_get_exported(mmap)), 0);
    assert!(dpu.ask("write 0 64 1").starts_with("DOCA_ERROR_IO_FAILED"));
    assert!(dpu.ask("read 0 64").starts_with("DOCA_ERROR_IO_FAILED"));
    assert_eq!(on_heap.read(0, 64), [0x33; 64]);
    assert_eq!(dpu.ask("destroy"), "DOCA_SUCCESS");
    assert_eq!(dpu.ask(&format!("import {}", hex(&desc))), "DOCA_ERROR_INVALID_VALUE");
    ok!(doca_mmap_destroy(mmap));

    // Memory on the stack, exported only for reading.
    let mut mmap = ptr::null_mut();
    ok!(doca_mmap_create(&mut mmap));
    ok!(doca_mmap_set_memrange(mmap, on_stack.as_ptr().cast_mut().cast(), on_stack.len()));
    ok!(doca_mmap_set_permissions(mmap, c::DOCA_ACCESS_FLAG_PCI_READ_ONLY));
    ok!(doca_mmap_add_dev(mmap, dev));
    ok!(doca_mmap_start(mmap));
    assert_eq!(dpu.ask(&format!("import {}", hex(&descriptor(mmap, dev)))), "DOCA_SUCCESS");
    assert_eq!(dpu.ask("read 1 64"), format!("DOCA_SUCCESS {}", "5a".repeat(64)));
    assert!(dpu.ask("write 0 64 1").starts_with("DOCA_ERROR_NOT_PERMITTED"));
    assert_eq!(on_stack, [0x5a; 512]);
    ok!(doca_mmap_destroy(mmap));
    assert!(dpu.ask("read 0 64").starts_with("DOCA_ERROR_IO_FAILED"));
    ok!(doca_dev_close(dev));
}

#[test]
fn the_end_of_the_exporter_is_an_error_of_the_importer() {
    // In this part, the other process is the host. It exports memory to this process, and is killed.
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host", "--nocapture", "--test-threads=1"])
        .env(ROLE, "host")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let desc = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(at) = line.find("> ") {
            break unhex(&line[at + 2..]);
        }
    };
    let rig = Rig::new("side = \"dpu\"", 2);
    let mut remote = ptr::null_mut();
    ok!(doca_mmap_create_from_export(ptr::null(), desc.as_ptr().cast(), desc.len(), rig.dev, &mut remote));
    let (mut addr, mut len) = (ptr::null_mut(), 0);
    ok!(doca_mmap_get_memrange(remote, &mut addr, &mut len));
    let there = get!(doca_buf_inventory_buf_get_by_args(rig.inventory, remote, addr, 64, addr, 64));
    let task = rig.task(there, rig.to(0, 64), 1);
    ok!(doca_task_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
    assert_eq!(rig.dst.read(0, 64), [0x77; 64]);
    host.kill().unwrap();
    host.wait().unwrap();
    let dst = code!(doca_dma_task_memcpy_get_dst(task.cast()));
    ok!(doca_buf_reset_data_len(dst));
    rig.dst.write(0, &[0; 64]);
    ok!(doca_task_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_ERROR_IO_FAILED")]);
    assert_eq!(rig.dst.read(0, 64), [0; 64]);
    rig.free(task);
    ok!(doca_mmap_destroy(remote));
    rig.close();
}

/// The host's part. Does nothing unless another test starts it as a process.
#[test]
fn host() {
    if std::env::var(ROLE).as_deref() != Ok("host") {
        return;
    }
    rig::configure("side = \"host\"");
    let dev = rig::open("3b:00.1");
    let memory = Memory::new(4096);
    memory.write(0, &[0x77; 4096]);
    let mmap = rig::map(dev, &memory, c::DOCA_ACCESS_FLAG_PCI_READ_WRITE);
    println!("> {}", hex(&descriptor(mmap, dev)));
    // Wait here until the process is killed.
    let _ = std::io::stdin().lock().lines().count();
}
