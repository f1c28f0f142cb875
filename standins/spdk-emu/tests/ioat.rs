//! Tests of channels through the calls of `ioat.h`: comparison with plain memory, limits, mistakes, faults,
//! threads.
#![expect(unsafe_code, reason = "calls of C functions")]

#[path = "support/env.rs"]
mod env;

use std::cell::Cell;
use std::ffi::c_void;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::Mutex;

use env::Memory;
use proptest::prelude::*;
use spdk_sys::bindings as c;

/// The configuration. Each test uses PCI functions of its own.
const CONFIG: &str = "
    [[socket]]
    xfercap = '4K'
    [[socket]]
    xfercap = '4K'
    profile = 'ioat'
    clock = 'virtual'
    function = [{ pci = '80:04.0' }, { pci = '80:04.1' }, { pci = '80:04.2' }]
    [[socket]]
    faults = 'fail@3:ch=0 + refuse@2:ch=1 + lose@1:ch=2 + corrupt@1:ch=3 + stick@2:ch=4'
    function = [{ pci = '81:04.0' }, { pci = '81:04.1' }, { pci = '81:04.2' }, { pci = '81:04.3' }, { pci = '81:04.4' }]
    [[socket]]
    fill = false
    ring = 8
    function = [{ pci = '82:04.0' }]
    [[socket]]
    faults = 'gone@2'
    function = [{ pci = '83:04.0' }]
    [[socket]]
    function = [{ pci = '84:04.0', driver = 'ioatdma' }, { pci = '84:04.1', taken = true }]
";

struct Channel(*mut c::spdk_ioat_chan);

// SAFETY: the handle may be used on any thread, and one thread at a time uses a channel.
unsafe impl Send for Channel {}

struct Search<'a> {
    address: &'a str,
    channel: *mut c::spdk_ioat_chan,
}

unsafe extern "C" fn on_probe(search: *mut c_void, device: *mut c::spdk_pci_device) -> bool {
    // SAFETY: `try_new` passed a pointer to its `Search` as the context, and nothing writes it during this
    // callback.
    let search = unsafe { &*search.cast::<Search<'_>>() };
    env::address(device) == search.address
}

unsafe extern "C" fn on_attach(
    search: *mut c_void,
    _: *mut c::spdk_pci_device,
    channel: *mut c::spdk_ioat_chan,
) {
    // SAFETY: `try_new` passed a pointer to its `Search`, which only these callbacks use during the call.
    unsafe { (*search.cast::<Search<'_>>()).channel = channel }
}

thread_local! {
    /// Arguments of the callbacks, in the order of the callbacks.
    static ENDED: Cell<Vec<usize>> = const { Cell::new(Vec::new()) };
}

unsafe extern "C" fn on_end(arg: *mut c_void) {
    let mut ended = ENDED.take();
    ended.push(arg.addr());
    ENDED.set(ended);
}

impl Channel {
    fn new(address: &str) -> Self {
        Self::try_new(address).unwrap_or_else(|result| panic!("no channel {address}: {result}"))
    }

    /// Attaches the channel at `address`. If the probe does not find it, returns the probe's result.
    fn try_new(address: &str) -> Result<Self, i32> {
        env::set_up(CONFIG);
        let mut search = Search { address, channel: ptr::null_mut() };
        // SAFETY: the callbacks take a pointer to this variable, which lives as long as the call.
        let result = unsafe { c::spdk_ioat_probe((&raw mut search).cast(), Some(on_probe), Some(on_attach)) };
        if search.channel.is_null() { Err(result) } else { Ok(Self(search.channel)) }
    }

    fn copy(&self, number: usize, dst: *mut c_void, src: *const c_void, len: usize) -> i32 {
        // SAFETY: the channel is attached. Both ranges are within memory that lives until the callback, or
        // the call only refuses them.
        unsafe {
            c::spdk_ioat_build_copy(
                self.0,
                ptr::without_provenance_mut(number),
                Some(on_end),
                dst,
                src,
                len as u64,
            )
        }
    }

    fn fill(&self, number: usize, dst: *mut c_void, pattern: u64, len: usize) -> i32 {
        // SAFETY: the channel is attached. The destination has `len` bytes and lives until the callback, or
        // the call only refuses it.
        unsafe {
            c::spdk_ioat_build_fill(
                self.0,
                ptr::without_provenance_mut(number),
                Some(on_end),
                dst,
                pattern,
                len as u64,
            )
        }
    }

    fn flush(&self) {
        // SAFETY: the channel is attached, and only this thread uses it.
        unsafe { c::spdk_ioat_flush(self.0) }
    }

    fn process(&self) -> i32 {
        // SAFETY: the channel is or was attached, and only this thread uses it.
        unsafe { c::spdk_ioat_process_events(self.0) }
    }

    /// Makes this number of `spdk_ioat_process_events` calls, and returns the arguments of their callbacks.
    fn ended(&self, calls: usize) -> Vec<usize> {
        for _ in 0..calls {
            assert!(self.process() >= 0);
        }
        ENDED.take()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the channel is or was attached, and its handle stays valid.
        unsafe { c::spdk_ioat_detach(self.0) }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Copy { src: usize, dst: usize, len: usize },
    Fill { dst: usize, pattern: u64, len: usize },
    Flush,
    Process,
}

const SPACE: usize = 6 << 20;

/// Generates operations, mostly near page boundaries, whose ranges do not overlap.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place = prop_oneof![0..SPACE / 2, (2_usize << 20) - 9000..(2 << 20) + 9000];
    let len = prop_oneof![Just(0_usize), 1_usize..200, 1_usize..20_000];
    let copy = (place.clone(), place.clone(), len.clone()).prop_map(|(src, dst, len)| {
        let src = src.min(SPACE / 2 - len);
        Op::Copy { src, dst: (SPACE / 2 + dst).min(SPACE - len), len }
    });
    let fill = (place, any::<u64>(), 1_usize..5_000).prop_map(|(dst, pattern, words)| {
        let len = words.min(2_500) * 8;
        Op::Fill { dst: (SPACE / 2 + dst).min(SPACE - len) & !7, pattern, len }
    });
    proptest::collection::vec(
        prop_oneof![5 => copy, 3 => fill, 1 => Just(Op::Flush), 1 => Just(Op::Process)],
        1..40,
    )
}

/// Runs the operations with the flushes that they request, and one at the end. If `apart` is set, operations
/// in flight together never write the same bytes, because devices that take time promise no order for such
/// writes.
fn run(channel: &Channel, memory: &Memory, ops: &[Op], apart: bool) {
    let mut oracle = vec![0_u8; SPACE];
    for (i, byte) in oracle.iter_mut().enumerate() {
        *byte = (i * 31 % 251) as u8;
    }
    memory.bytes().copy_from_slice(&oracle);
    let (mut asked, mut seen) = (Vec::new(), Vec::new());
    let mut writing: Vec<std::ops::Range<usize>> = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        if let Op::Copy { dst, len, .. } | Op::Fill { dst, len, .. } = *op {
            if apart && writing.iter().any(|other| dst < other.end && other.start < dst + len) {
                finish(channel, &asked, &mut seen);
                writing.clear();
            }
            writing.push(dst..dst + len);
        }
        match *op {
            Op::Copy { src, dst, len } => {
                assert_eq!(channel.copy(number, memory.at(dst), memory.at(src), len), 0);
                oracle.copy_within(src..src + len, dst);
                asked.push(number);
            }
            Op::Fill { dst, pattern, len } => {
                assert_eq!(channel.fill(number, memory.at(dst), pattern, len), 0);
                let bytes = pattern.to_le_bytes().into_iter().cycle();
                oracle[dst..dst + len].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
                asked.push(number);
            }
            Op::Flush => channel.flush(),
            Op::Process => seen.extend(channel.ended(1)),
        }
    }
    finish(channel, &asked, &mut seen);
    let differs = memory.bytes().iter().zip(&oracle).position(|(is, should)| is != should);
    assert_eq!(differs, None, "the first byte that differs from the oracle's");
}

fn finish(channel: &Channel, asked: &[usize], seen: &mut Vec<usize>) {
    channel.flush();
    for _ in 0..100_000 {
        if seen.len() == asked.len() {
            break;
        }
        seen.extend(channel.ended(1));
    }
    assert_eq!(seen, asked, "each callback runs once, in order");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn as_in_plain_memory(ops in ops()) {
        let channel = Channel::new("0000:00:04.0");
        run(&channel, &Memory::new(SPACE, 2 << 20), &ops, false);
        drop(channel);
    }

    #[test]
    fn as_in_plain_memory_when_it_takes_time(ops in ops()) {
        let channel = Channel::new("0000:80:04.0");
        run(&channel, &Memory::new(SPACE, 2 << 20), &ops, true);
        drop(channel);
    }
}

#[test]
fn nothing_moves_before_the_doorbell() {
    let channel = Channel::new("0000:00:04.1");
    let (src, dst) = (Memory::new(64, 64), Memory::new(64, 64));
    src.bytes().fill(7);
    assert_eq!(channel.copy(1, dst.at(0), src.at(0), 64), 0);
    assert_eq!((channel.process(), dst.bytes()[0]), (0, 0));
    channel.flush();
    assert_eq!((channel.process(), dst.bytes()[0]), (1, 7));
    assert_eq!(ENDED.take(), [1]);
    assert_eq!(channel.process(), 0);
    drop(channel);
}

#[test]
fn descriptors_are_counted_and_the_last_calls_back() {
    let channel = Channel::new("0000:00:04.2");
    let memory = Memory::new(64 << 10, 4096);
    assert_eq!(channel.copy(1, memory.at(0), memory.at(32 << 10), 10_000), 0);
    assert_eq!(channel.copy(2, memory.at(0), memory.at(32 << 10), 0), 0);
    channel.flush();
    // Three pieces of up to 4 KiB, and a null descriptor.
    assert_eq!(channel.process(), 4);
    assert_eq!(ENDED.take(), [1, 2]);
    // A copy is split at the boundary of pages that are not contiguous for devices, in the source or in the
    // destination.
    const PAGE: usize = 2 << 20;
    let pages = Memory::new(2 * PAGE, PAGE);
    for (dst, src) in [(pages.at(PAGE - 100), memory.at(0)), (memory.at(0), pages.at(PAGE - 100))] {
        assert_eq!(channel.copy(3, dst, src, 4096), 0);
        channel.flush();
        assert_eq!((channel.process(), ENDED.take()), (2, vec![3]));
    }
    drop(channel);
}

#[test]
fn a_full_ring_takes_nothing_in_part() {
    let channel = Channel::new("0000:82:04.0");
    // SAFETY: the channel is attached, so its handle is valid.
    assert_eq!(unsafe { c::spdk_ioat_get_max_descriptors(channel.0) }, 8);
    let memory = Memory::new(4 << 20, 64);
    for number in 0..6 {
        assert_eq!(channel.copy(number, memory.at(64 * number), memory.at(1 << 20), 64), 0);
    }
    // One of the seven usable descriptors is free. An operation of two descriptors does not fit, but an
    // operation of one descriptor does.
    assert_eq!(channel.copy(7, memory.at(1 << 20), memory.at(0), (1 << 20) + 1), -libc_enomem());
    assert_eq!(channel.copy(8, memory.at(1 << 20), memory.at(0), 64), 0);
    assert_eq!(channel.copy(9, memory.at(1 << 20), memory.at(0), 0), -libc_enomem());
    channel.flush();
    assert_eq!(channel.process(), 7);
    assert_eq!(ENDED.take(), [0, 1, 2, 3, 4, 5, 8]);
    // SAFETY: the channel is attached, so its handle is valid.
    assert_eq!(unsafe { c::spdk_ioat_get_dma_capabilities(channel.0) }, c::SPDK_IOAT_ENGINE_COPY_SUPPORTED);
    assert_eq!(channel.fill(1, memory.at(0), 5, 64), -1);
    drop(channel);
}

const fn libc_enomem() -> i32 {
    12
}

/// Returns an address far from every mapping.
fn middle_of_the_widest_gap() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let (mut end, mut widest) = (0, 0..0);
    for line in maps.lines() {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let parse = |text| u64::from_str_radix(text, 16).unwrap() as usize;
        // The last mapping is the kernel's page, after addresses that no process can map.
        if !line.ends_with("[vsyscall]") && parse(from) - end > widest.len() {
            widest = end..parse(from);
        }
        end = parse(to);
    }
    widest.start.midpoint(widest.end)
}

#[test]
fn memory_that_devices_do_not_reach() {
    let channel = Channel::new("0000:00:04.3");
    let memory = Memory::new(64 << 10, 4096);
    let mut own = [0_u8; 64];
    assert_eq!(channel.copy(1, ptr::from_mut(&mut own).cast(), memory.at(0), 64), -22);
    assert_eq!(channel.copy(2, memory.at(0), ptr::null(), 64), -22);
    assert_eq!(channel.fill(3, ptr::without_provenance_mut(usize::MAX - 10), 5, 64), -22);
    // A fill of 0 bytes is always refused.
    assert_eq!(channel.fill(4, memory.at(0), 5, 0), -libc_enomem());
    channel.flush();
    assert_eq!((channel.process(), own), (0, [0; 64]));

    // Only whole pages of 2 MiB can be registered, and only once.
    const PAGE: usize = 2 << 20;
    let pages = vec![0_u8; 3 * PAGE].leak();
    let start = pages.as_mut_ptr().wrapping_add(pages.as_ptr().align_offset(PAGE));
    let (start, inside) = (start.cast::<c_void>(), start.wrapping_add(4096).cast::<c_void>());
    // SAFETY: the memory is leaked, so it stays mapped.
    let register = |start, len| unsafe { c::spdk_mem_register(start, len) };
    // SAFETY: the memory is leaked, so it stays mapped. No device uses it.
    let unregister = |start, len| unsafe { c::spdk_mem_unregister(start, len) };
    assert_eq!((register(inside, PAGE), register(start, 4096), unregister(start, PAGE)), (-22, -22, -22));
    assert_eq!((register(start, PAGE), register(start, PAGE)), (0, -16));
    memory.bytes().fill(9);
    assert_eq!(channel.copy(5, inside, memory.at(0), 4096), 0);
    channel.flush();
    assert_eq!(channel.process(), 1);
    // SAFETY: the byte is in the leaked memory, and the copy, which wrote it, has ended.
    assert_eq!(unsafe { inside.cast::<u8>().read() }, 9);
    assert_eq!(unregister(start, PAGE), 0);
    assert_eq!(channel.copy(6, inside, memory.at(0), 64), -22);
    let nowhere = middle_of_the_widest_gap() / PAGE * PAGE;
    // SAFETY: nothing is mapped there, so the call only reports that.
    assert_eq!(unsafe { c::spdk_mem_register(ptr::without_provenance_mut(nowhere), PAGE) }, -14);
    ENDED.take();
    drop(channel);
}

#[test]
fn a_detached_channel_does_nothing_and_can_be_attached_again() {
    let channel = Channel::new("0000:00:04.4");
    assert!(Channel::try_new("0000:00:04.4").is_err(), "the channel is taken");
    let memory = Memory::new(4096, 64);
    assert_eq!(channel.copy(1, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    let stale = channel.0;
    drop(channel);
    let stale = std::mem::ManuallyDrop::new(Channel(stale));
    assert_eq!(stale.copy(1, memory.at(0), memory.at(64), 64), -22);
    stale.flush();
    assert_eq!(stale.process(), -22);
    let channel = Channel::new("0000:00:04.4");
    assert_eq!((channel.process(), ENDED.take()), (0, vec![]), "copies in flight were dropped");
    drop(channel);
}

#[test]
fn a_failure_halts_the_channel_and_attaching_again_helps() {
    let channel = Channel::new("0000:81:04.0");
    let memory = Memory::new(4096, 64);
    for number in 1..=4 {
        assert_eq!(channel.copy(number, memory.at(0), memory.at(64), 64), 0);
    }
    channel.flush();
    assert_eq!((channel.process(), channel.process()), (-1, -1));
    assert!(ENDED.take().is_empty(), "a halted channel runs no callbacks");
    assert_eq!(
        channel.copy(5, memory.at(0), memory.at(64), 64),
        0,
        "a halted channel still builds descriptors"
    );
    channel.flush();
    assert_eq!(channel.process(), -1);
    drop(channel);
    let channel = Channel::new("0000:81:04.0");
    assert_eq!(channel.copy(6, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert_eq!((channel.process(), ENDED.take()), (1, vec![6]));
    drop(channel);
}

#[test]
fn other_faults() {
    let channel = Channel::new("0000:81:04.1");
    let memory = Memory::new(4096, 64);
    memory.bytes()[64..128].fill(7);
    assert_eq!(channel.copy(1, memory.at(0), memory.at(64), 64), 0);
    assert_eq!(channel.copy(2, memory.at(0), memory.at(64), 64), -libc_enomem(), "refused");
    assert_eq!(channel.copy(3, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert_eq!(channel.ended(1), [1, 3]);

    let channel = Channel::new("0000:81:04.2");
    assert_eq!(channel.copy(1, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert!(channel.ended(3).is_empty(), "its completion is lost");
    assert_eq!(channel.copy(2, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert_eq!(channel.ended(1), [1, 2], "the next completion covers it");

    let channel = Channel::new("0000:81:04.3");
    assert_eq!(channel.copy(1, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert_eq!(channel.ended(1), [1]);
    assert_ne!(memory.bytes()[..64], [7; 64], "one bit is wrong");

    let channel = Channel::new("0000:81:04.4");
    assert_eq!(channel.copy(1, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert_eq!(channel.ended(1), [1]);
    assert_eq!(channel.copy(2, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert!(channel.ended(5).is_empty(), "stuck");
    drop(channel);
    let channel = Channel::new("0000:81:04.4");
    assert_eq!(channel.copy(3, memory.at(0), memory.at(64), 64), 0);
    channel.flush();
    assert_eq!(channel.ended(1), [3]);

    let channel = Channel::new("0000:83:04.0");
    for number in 1..=3 {
        assert_eq!(channel.copy(number, memory.at(0), memory.at(64), 64), 0);
    }
    channel.flush();
    channel.ended(5);
    assert!(channel.ended(5).is_empty(), "a device that has vanished reports nothing");
    drop(channel);
    assert_eq!(Channel::try_new("0000:83:04.0").err(), Some(-1), "the device has vanished permanently");
}

unsafe extern "C" fn probe_again(context: *mut c_void, _: *mut c::spdk_pci_device) -> bool {
    // SAFETY: the context is null, and the callbacks do not run, because this probe is refused.
    let result = unsafe { c::spdk_ioat_probe(ptr::null_mut(), Some(on_probe), Some(on_attach)) };
    // SAFETY: `context` points to the test's `i32`, which outlives the call.
    unsafe { context.cast::<i32>().write(result) };
    false
}

#[test]
fn a_probe_in_a_probe_is_refused_and_does_not_hang() {
    env::set_up(CONFIG);
    let mut inner = 0;
    let context = (&raw mut inner).cast::<c_void>();
    // SAFETY: `probe_again` takes a pointer to this variable, which lives as long as the call. `on_attach`
    // does not run, because `probe_again` declines every function.
    assert_eq!(unsafe { c::spdk_ioat_probe(context, Some(probe_again), Some(on_attach)) }, 0);
    assert_eq!(inner, -1);
}

#[test]
fn functions_of_others_are_not_attached() {
    assert_eq!(
        Channel::try_new("0000:84:04.0").err(),
        Some(0),
        "a function of the kernel's driver is not offered"
    );
    assert_eq!(Channel::try_new("0000:84:04.1").err(), Some(0), "another process has it");
}

#[test]
fn channels_on_threads() {
    static ALL: Mutex<usize> = Mutex::new(0);
    let channels: Vec<_> =
        ["0000:00:04.5", "0000:00:04.6", "0000:00:04.7", "0000:80:04.2"].map(Channel::new).into();
    std::thread::scope(|scope| {
        for (seed, channel) in (1_u8..).zip(channels) {
            scope.spawn(move || {
                let (src, dst) = (Memory::new(64 << 10, 64), Memory::new(64 << 10, 64));
                for round in 0..50_u8 {
                    src.bytes().fill(seed ^ round);
                    for number in 0..16 {
                        let place = number * 4096;
                        assert_eq!(channel.copy(number, dst.at(place), src.at(place), 4096), 0);
                    }
                    channel.flush();
                    let mut ended = 0;
                    while ended < 16 {
                        ended += channel.ended(1).len();
                    }
                    assert!(src.bytes() == dst.bytes());
                    *ALL.lock().unwrap() += ended;
                }
                drop(channel);
            });
        }
    });
    assert_eq!(*ALL.lock().unwrap(), 4 * 50 * 16);
}

/// Runs the next test in a process of its own, because the devices of other tests also advance the virtual
/// time.
#[test]
fn a_doorbell_for_many_copies_pays() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["rates_with_few_and_with_many_doorbells", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" million a second"), "{output:?}");
}

/// Compares one doorbell per 128 copies with one per copy, in model time, for 512 bytes and 256 copies in
/// flight. The published rates are 14.0 and 3.7 million copies per second (SPDK commit 6728c1b8cb).
#[test]
#[ignore = "a part of the other test, in a separate process"]
fn rates_with_few_and_with_many_doorbells() {
    let channel = Channel::new("0000:80:04.1");
    let memory = Memory::new(256 * 1024, 4096);
    let rate = |per_doorbell: usize| {
        // SAFETY: the call takes no arguments.
        let begun = unsafe { c::spdk_get_ticks() };
        let (mut built, mut ended, mut waiting) = (0, 0, 0);
        while ended < 5_000 {
            while built < 5_000 && built - ended < 256 {
                let place = built % 256 * 1024;
                assert_eq!(channel.copy(built, memory.at(place), memory.at(place + 512), 512), 0);
                (built, waiting) = (built + 1, waiting + 1);
                if waiting == per_doorbell || built == 5_000 {
                    channel.flush();
                    waiting = 0;
                }
            }
            ended += channel.ended(1).len();
        }
        // SAFETY: the call takes no arguments.
        5_000.0 * 1e9 / (unsafe { c::spdk_get_ticks() } - begun) as f64
    };
    let (one, many) = (rate(1), rate(128));
    println!("{:.1} and {:.1} million a second, {:.2} times", one / 1e6, many / 1e6, many / one);
    assert!(many / one >= 3.0, "{one} {many}");
    drop(channel);
}
