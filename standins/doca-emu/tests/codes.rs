//! Tests that a program can cause each result code of the core calls.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::ptr;

use rig::{Rig, name};

const CHILD: &str = "DOCA_EMU_TEST_CODES";

/// Lists the devices of the environment's configuration. Does nothing unless another test starts it
/// as a process.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (mut list, mut count) = (ptr::null_mut(), 0);
    println!("> {}", name(code!(doca_devinfo_create_list(&mut list, &mut count))));
}

/// Returns the result and the error output of a process with this environment.
fn run(variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    command.env_remove("DOCA_EMU").env_remove("DOCA_EMU_CONFIG");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let answer = out.lines().find_map(|line| line.split_once("> ")).unwrap().1.to_owned();
    (answer, err)
}

#[test]
fn the_environment_configures_and_mistakes_are_said_in_one_line() {
    assert_eq!(run(&[]).0, "DOCA_SUCCESS");
    assert_eq!(run(&[("DOCA_EMU", "faults = \"fail@5\"")]).0, "DOCA_SUCCESS");
    let file = std::env::temp_dir().join(format!("doca-emu-{}.toml", std::process::id()));
    std::fs::write(&file, "[[card]]\nprofile = \"bluefield3\"\nspeed = 9\n").unwrap();
    let path = file.to_str().unwrap();
    for (variables, says) in [
        (&[("DOCA_EMU", "faults = \"fial@5\"")][..], "DOCA_EMU: card 1: "),
        (&[("DOCA_EMU_CONFIG", path)], "card 1: unknown field `speed`"),
        (&[("DOCA_EMU_CONFIG", "/nowhere")], "DOCA_EMU_CONFIG=/nowhere: cannot read it"),
        (&[("DOCA_EMU_CONFIG", path), ("DOCA_EMU", "seed = 1")], "both are set; unset one"),
    ] {
        let (answer, err) = run(variables);
        assert_eq!(answer, "DOCA_ERROR_BAD_CONFIG", "{variables:?}");
        let lines: Vec<_> = err.lines().filter(|line| line.starts_with("DOCA stand-in: ")).collect();
        assert_eq!(lines.len(), 1, "{err}");
        assert!(lines[0].contains(says), "{err}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn all_are_reached() {
    let mut reached = BTreeSet::new();
    let mut note = |code: u32| {
        reached.insert(name(code));
        code
    };
    let rig = Rig::new("queue_depth = 1", 2);
    let info = code!(doca_dev_as_devinfo(rig.dev));
    note(code!(doca_ctx_start(rig.ctx)));
    note(code!(doca_dev_close(rig.dev)));
    note(code!(doca_mmap_start(ptr::null_mut())));
    note(code!(doca_mmap_add_dev(rig.src_map, rig.dev)));
    let mmap = get!(doca_mmap_create());
    note(code!(doca_mmap_add_dev(mmap, rig.dev)));
    note(code!(doca_mmap_add_dev(mmap, rig.dev)));
    let other = rig::open("03:00.1");
    note(code!(doca_mmap_rm_dev(mmap, other)));
    let mut lid = 0;
    note(code!(doca_devinfo_get_lid(info, &mut lid)));

    // A file that is open read-only cannot be mapped for a device.
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let at = ptr::without_provenance_mut(0x1000);
    note(code!(doca_mmap_set_dmabuf_memrange(mmap, file.as_raw_fd(), at, 0, 8)));

    let (first, second) = (rig.copy(0, 8, 0), rig.copy(8, 8, 1));
    ok!(doca_task_submit(first));
    note(code!(doca_task_submit(second)));
    let mut more = ptr::null_mut();
    let (none, null) = (rig::number(0), ptr::null_mut());
    note(code!(doca_dma_task_memcpy_alloc_init(rig.dma, null, null, none, &mut more)));
    note(code!(doca_ctx_stop(rig.ctx)));
    rig.until(1);
    let buf = rig.from(64, 8);
    (1..u16::MAX).for_each(|_| ok!(doca_buf_inc_refcount(buf, ptr::null_mut())));
    note(code!(doca_buf_inc_refcount(buf, ptr::null_mut())));
    (0..u16::MAX).for_each(|_| ok!(doca_buf_dec_refcount(buf, ptr::null_mut())));

    let lone = get!(doca_dma_create(rig.dev));
    let ctx = code!(doca_dma_as_ctx(lone));
    note(code!(doca_ctx_start(ctx)));
    ok!(doca_dma_destroy(lone));
    ok!(doca_mmap_destroy(mmap));
    ok!(doca_dev_close(other));
    rig.free(first);
    rig.free(second);
    rig.close();

    // A task fails on a device that has vanished. This device has no network address.
    let card = "card = [{ faults = \"gone@1\", function = [{ pci = \"0000:03:00.0\", side = \"dpu\" }] }]";
    let rig = Rig::new(card, 1);
    let info = code!(doca_dev_as_devinfo(rig.dev));
    let mut address = [0; 16];
    note(code!(doca_devinfo_get_ipv6_addr(info, address.as_mut_ptr(), 16)));
    let task = rig.copy(0, 8, 0);
    ok!(doca_task_submit(task));
    rig.until(1);
    note(rig.seen.ended.borrow()[0].1);
    rig.free(task);
    rig.drain();
    note(code!(doca_ctx_start(rig.ctx)));
    rig.close();

    let wanted = [
        "DOCA_ERROR_AGAIN",
        "DOCA_ERROR_ALREADY_EXIST",
        "DOCA_ERROR_BAD_STATE",
        "DOCA_ERROR_DRIVER",
        "DOCA_ERROR_INITIALIZATION",
        "DOCA_ERROR_INVALID_VALUE",
        "DOCA_ERROR_IN_PROGRESS",
        "DOCA_ERROR_IN_USE",
        "DOCA_ERROR_IO_FAILED",
        "DOCA_ERROR_NOT_CONNECTED",
        "DOCA_ERROR_NOT_FOUND",
        "DOCA_ERROR_NOT_PERMITTED",
        "DOCA_ERROR_NOT_SUPPORTED",
        "DOCA_ERROR_NO_MEMORY",
        "DOCA_ERROR_OPERATING_SYSTEM",
        "DOCA_ERROR_TOO_BIG",
        "DOCA_SUCCESS",
    ];
    assert_eq!(reached.into_iter().collect::<Vec<_>>(), wanted);
}
