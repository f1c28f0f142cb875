//! Tests with a driver that uses only I/OAT's registers and memory: BAR 0, descriptors and the
//! completion word.
#![expect(unsafe_code, reason = "a driver in user space")]

#[path = "support/env.rs"]
mod env;
#[path = "support/ioat_driver.rs"]
mod ioat_driver;

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use env::{Memory, bus};
use ioat_driver::*;
use spdk_sys::bindings as c;

/// Fills the memory with a pattern that repeats every 251 bytes.
fn mark(memory: &Memory, seed: u8) {
    memory.bytes().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8 ^ seed);
}

#[test]
fn states_what_it_is() {
    let driver = Driver::unstarted("0000:00:04.0");
    assert_eq!(driver.read::<u8>(XFERCAP), 16);
    assert_eq!(driver.read::<u8>(CBVER), 0x34);
    assert_eq!(driver.read::<u32>(DMACAPABILITY) & 1 << 6, 1 << 6);
    // A channel that was not started is neither active nor idle.
    assert!(driver.read::<u64>(CHANSTS) & 7 >= SUSPENDED);
    let mut id = 0_u32;
    // SAFETY: the library returned this device, and the pointer is to a local variable.
    assert_eq!(unsafe { c::spdk_pci_device_cfg_read32(driver.device, &mut id, 0) }, 0);
    assert_eq!(id, 0x2021_8086);
    let mut command = 0_u16;
    // SAFETY: the library returned this device, and the pointer is to a local variable.
    unsafe { c::spdk_pci_device_cfg_read16(driver.device, &mut command, 4) };
    // SAFETY: the library returned this device, and the call takes no other pointer.
    unsafe { c::spdk_pci_device_cfg_write16(driver.device, command | 4, 4) };
    // SAFETY: the library returned this device, and the pointer is to a local variable.
    unsafe { c::spdk_pci_device_cfg_read16(driver.device, &mut command, 4) };
    assert_eq!(command & 4, 4, "bus mastering is on");
}

#[test]
fn copies_and_fills() {
    let mut driver = Driver::new("0000:00:04.1");
    let (src, dst) = (Memory::new(65_536, 4096), Memory::new(65_536 + 64, 4096));
    mark(&src, 7);
    driver.build(65_536, UPDATE, src.bus(0), dst.bus(32));
    driver.ring_doorbell();
    driver.finish();
    assert_eq!(dst.bytes()[32..65_568], *src.bytes());
    assert_eq!(dst.bytes()[..32], [0; 32]);
    assert_eq!(dst.bytes()[65_568..], [0; 32]);
    driver.build(4099, FILL | UPDATE, 0x0807_0605_0403_0201, dst.bus(5));
    driver.ring_doorbell();
    driver.finish();
    assert!(dst.bytes()[5..5 + 4099].iter().enumerate().all(|(i, byte)| *byte == (i % 8) as u8 + 1));
    assert_eq!(dst.bytes()[5 + 4099], src.bytes()[5 + 4099 - 32]);
}

#[test]
fn goes_round_the_ring() {
    let mut driver = Driver::new("0000:00:04.2");
    let (src, dst) = (Memory::new(RING, 64), Memory::new(RING, 64));
    mark(&src, 9);
    // Copy one byte per descriptor, three times around the ring. Only the last descriptor of a batch
    // updates the completion word.
    for i in 0..3 * RING {
        if i % RING == 0 {
            dst.bytes().fill(0xee);
        }
        let last = i % 1000 == 999 || i % RING == RING - 1;
        driver.build(1, if last { UPDATE } else { 0 }, src.bus(i % RING), dst.bus(i % RING));
        if last {
            driver.ring_doorbell();
            driver.finish();
        }
        if i % RING == RING - 1 {
            assert_eq!(dst.bytes(), src.bytes());
        }
    }
}

#[test]
fn one_doorbell_for_a_whole_ring() {
    let mut driver = Driver::new("0000:00:04.3");
    let (src, dst) = (Memory::new(8 * RING, 64), Memory::new(8 * RING, 64));
    mark(&src, 1);
    // Use all descriptors of the ring except one.
    for i in 0..RING - 1 {
        driver.build(8, if i == RING - 2 { UPDATE } else { 0 }, src.bus(8 * i), dst.bus(8 * i));
    }
    driver.ring_doorbell();
    driver.finish();
    assert_eq!(dst.bytes()[..8 * (RING - 1)], src.bytes()[..8 * (RING - 1)]);
    assert_eq!(dst.bytes()[8 * (RING - 1)..], [0; 8]);
}

#[test]
fn nothing_happens_before_the_doorbell_or_while_suspended() {
    let mut driver = Driver::new("0000:00:04.4");
    let (src, dst) = (Memory::new(64, 64), Memory::new(64, 64));
    mark(&src, 2);
    driver.build(64, UPDATE, src.bus(0), dst.bus(0));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(dst.bytes(), [0; 64]);
    driver.command(0x04);
    driver.wait(SUSPENDED);
    driver.ring_doorbell();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(dst.bytes(), [0; 64]);
    driver.start();
    driver.build(64, UPDATE, src.bus(0), dst.bus(0));
    driver.ring_doorbell();
    driver.finish();
    assert_eq!(dst.bytes(), src.bytes());
}

#[test]
fn mistakes_halt_the_channel_and_a_reset_helps() {
    let mut driver = Driver::new("0000:00:04.5");
    let (src, dst) = (Memory::new(4096, 64), Memory::new(4096, 64));
    mark(&src, 3);
    let nowhere = 0x7f00_0000_0000;
    let stack = [0_u8; 64];
    let mistakes: [(u32, u32, u64, u64, u32); 8] = [
        (64, UPDATE, nowhere, dst.bus(0), 0x0001),
        (64, UPDATE, src.bus(0), nowhere, 0x0002),
        (64, UPDATE, src.bus(0), u64::MAX - 5, 0x0002),
        (64, UPDATE | FILL, 0, nowhere, 0x0002),
        (65_537, UPDATE, src.bus(0), dst.bus(0), 0x0800),
        (0, UPDATE, src.bus(0), dst.bus(0), 0x0800),
        (64, UPDATE | 0x87 << 24, src.bus(0), dst.bus(0), 0x0400),
        (64, UPDATE, ptr::from_ref(&stack).addr() as u64, dst.bus(0), 0x0001),
    ];
    for (size, control, from, to, error) in mistakes {
        driver.build(64, UPDATE, src.bus(0), dst.bus(64));
        let good = driver.ring.bus((driver.head - 1) * DESCRIPTOR);
        driver.build(size, control, from, to);
        driver.build(64, UPDATE, src.bus(0), dst.bus(1024));
        driver.ring_doorbell();
        driver.wait(HALTED);
        assert_eq!(driver.read::<u32>(CHANERR), error, "{size} {control:#x} {from:#x} {to:#x}");
        assert_eq!(driver.completed(), good | HALTED);
        assert_eq!(dst.bytes()[64..128], src.bytes()[..64]);
        assert_eq!(dst.bytes()[..64], [0; 64]);
        assert_eq!(dst.bytes()[1024..1088], [0; 64], "descriptors after the mistake were not executed");
        dst.bytes().fill(0);
        driver.start();
    }
}

#[test]
fn a_chain_that_leads_nowhere_halts() {
    let mut driver = Driver::new("0000:00:04.6");
    for (chain, error) in [(0x7f00_0000_0000, 0x10), (driver.ring.bus(0) + 8, 0x10)] {
        driver.reset();
        driver.write(CHAINADDR, chain);
        driver.write(DMACOUNT, 1_u16);
        wait_until(|| driver.read::<u32>(CHANERR) == error, || "no error".to_owned());
        driver.wait(HALTED);
    }
    driver.start();
    driver.field(driver.head, 24, 0x7f00_0000_0000_u64);
    driver.build(8, NULL | UPDATE, 0, 0);
    driver.build(8, NULL | UPDATE, 0, 0);
    driver.ring_doorbell();
    driver.wait(HALTED);
    assert_eq!(driver.read::<u32>(CHANERR), 0x04);
    // The address of the completion word is not mapped.
    driver.reset();
    driver.write(CHANCMP, 0x7f00_0000_0000_u64);
    driver.write(CHAINADDR, driver.ring.bus(0));
    driver.field(0, 4, NULL | UPDATE);
    driver.write(DMACOUNT, 1_u16);
    driver.wait(HALTED);
    wait_until(|| driver.read::<u32>(CHANERR) == 0x1000, || "no error".to_owned());
}

#[test]
fn memory_in_a_row_for_devices_need_not_be_so_for_the_program() {
    let mut driver = Driver::new("0000:00:04.7");
    const PAGE: usize = 2 << 20;
    let memory = Memory::new(4 * PAGE, PAGE);
    // Find two pages that are contiguous for devices. In the program's memory, they are not.
    let buses: Vec<_> = (0..4).map(|page| memory.bus(page * PAGE)).collect();
    let pair = (0..4).find_map(|a| (0..4).find(|b| buses[a] + PAGE as u64 == buses[*b]).map(|b| (a, b)));
    let (first, second) = pair.expect("two pages that are contiguous for devices");
    assert_ne!(
        first + 1,
        second,
        "the pages must not be contiguous for the program, or the test would be void"
    );
    let src = Memory::new(65_536, 64);
    mark(&src, 4);
    driver.build(65_536, UPDATE, src.bus(0), buses[first] + (PAGE - 1000) as u64);
    driver.ring_doorbell();
    driver.finish();
    assert_eq!(memory.bytes()[first * PAGE + PAGE - 1000..][..1000], src.bytes()[..1000]);
    assert_eq!(memory.bytes()[second * PAGE..][..64_536], src.bytes()[1000..]);
    // The pattern continues across the page boundary.
    driver.build(16, FILL | UPDATE, 0x0807_0605_0403_0201, buses[first] + (PAGE - 5) as u64);
    driver.ring_doorbell();
    driver.finish();
    assert_eq!(memory.bytes()[first * PAGE + PAGE - 5..][..5], [1, 2, 3, 4, 5]);
    assert_eq!(memory.bytes()[second * PAGE..][..11], [6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn no_fill_without_the_capability() {
    let mut driver = Driver::new("0000:81:04.0");
    assert_eq!(driver.read::<u32>(DMACAPABILITY) & 1 << 6, 0);
    let dst = Memory::new(64, 64);
    driver.build(64, FILL | UPDATE, 5, dst.bus(0));
    driver.ring_doorbell();
    driver.wait(HALTED);
    assert_eq!((driver.read::<u32>(CHANERR), dst.bytes()[0]), (0x0400, 0));
}

#[test]
fn four_gib_are_written_as_none() {
    assert_eq!(Driver::unstarted("0000:82:04.1").read::<u8>(XFERCAP), 0);
}

/// An error stays until a reset: neither a valid chain nor clearing the error bits restarts the channel.
#[test]
fn a_halted_channel_starts_again_after_a_reset_only() {
    let mut driver = Driver::new("0000:82:04.2");
    let (src, dst) = (Memory::new(64, 64), Memory::new(64, 64));
    mark(&src, 6);
    let still_halted = |driver: &Driver| {
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(driver.read::<u64>(CHANSTS) & 7, HALTED);
        assert_eq!(dst.bytes(), [0; 64]);
    };
    // The error is at the first descriptor.
    driver.reset();
    driver.write(CHAINADDR, 0x7f00_0000_0000_u64);
    driver.build(64, UPDATE, src.bus(0), dst.bus(0));
    driver.ring_doorbell();
    wait_until(|| driver.read::<u32>(CHANERR) != 0, || "no error".to_owned());
    driver.wait(HALTED);
    driver.write(CHAINADDR, driver.ring.bus(0));
    still_halted(&driver);
    // The error is at a later descriptor.
    driver.start();
    driver.build(64, UPDATE, 0x7f00_0000_0000, dst.bus(0));
    driver.build(64, UPDATE, src.bus(0), dst.bus(0));
    driver.ring_doorbell();
    driver.wait(HALTED);
    let errors: u32 = driver.read(CHANERR);
    assert_ne!(errors, 0);
    still_halted(&driver);
    driver.start();
    driver.build(64, UPDATE, src.bus(0), dst.bus(0));
    driver.ring_doorbell();
    driver.finish();
    assert_eq!(dst.bytes(), src.bytes());
}

#[test]
fn a_partly_mapped_destination_is_not_written() {
    let mut driver = Driver::new("0000:82:04.3");
    // Determine the number of contiguous mapped bytes. The copies below are longer.
    let memory = Memory::new(4096, 4096);
    let mut row = u64::MAX / 2;
    // SAFETY: the call only looks the address up, and the size is a local variable.
    let start = unsafe { c::spdk_vtophys(memory.at(0), &mut row) };
    let src = Memory::new(64, 64);
    mark(&src, 8);
    assert!(row < 1 << 31, "{row}");
    for (from, to, error) in [(start, src.bus(0), 0x0001), (src.bus(0), start, 0x0002)] {
        let whole = 1_u32 << 31;
        memory.bytes().fill(0xee);
        driver.build(whole, UPDATE, from, to);
        driver.ring_doorbell();
        driver.wait(HALTED);
        // If both sides are too short, the engine may report either.
        assert_ne!(driver.read::<u32>(CHANERR) & 0x0003, 0, "{error}");
        assert!(memory.bytes().iter().all(|byte| *byte == 0xee));
        driver.start();
    }
}

#[test]
fn a_completion_is_written_when_it_is_asked_for_and_where_it_can_be() {
    let mut driver = Driver::new("0000:82:04.0");
    let first = driver.completed();
    let (src, dst) = (Memory::new(64, 64), Memory::new(64, 64));
    mark(&src, 9);
    driver.build(64, 0, src.bus(0), dst.bus(0));
    driver.ring_doorbell();
    let done = driver.ring.bus((driver.head - 1) * DESCRIPTOR);
    wait_until(|| driver.read::<u64>(CHANSTS) == done | IDLE, || "not done".to_owned());
    assert_eq!((driver.completed(), dst.bytes()), (first, src.bytes()));
    // The third descriptor's completion update is lost.
    driver.build(64, UPDATE, src.bus(0), dst.bus(0));
    driver.ring_doorbell();
    let done = driver.ring.bus((driver.head - 1) * DESCRIPTOR);
    wait_until(|| driver.read::<u64>(CHANSTS) == done | IDLE, || "not done".to_owned());
    assert_eq!(driver.completed(), first);
    driver.build(64, UPDATE, src.bus(0), dst.bus(0));
    driver.ring_doorbell();
    driver.finish();
    // The address of the completion word is not a multiple of 8.
    driver.reset();
    driver.write(CHANCMP, driver.completion.bus(0) + 4);
    driver.write(CHAINADDR, driver.ring.bus(0));
    driver.build(8, NULL | UPDATE, 0, 0);
    driver.ring_doorbell();
    wait_until(|| driver.read::<u32>(CHANERR) == 0x1000, || "no error".to_owned());
    driver.wait(HALTED);
}

/// Starts a function whose descriptors have a fault, and submits two copies.
fn with_fault(address: &str) -> (Driver, Memory, Memory) {
    let mut driver = Driver::new(address);
    let (src, dst) = (Memory::new(128, 64), Memory::new(128, 64));
    mark(&src, 5);
    for i in 0..2 {
        driver.build(64, UPDATE, src.bus(64 * i), dst.bus(64 * i));
    }
    driver.ring_doorbell();
    (driver, src, dst)
}

#[test]
fn faults_strike_as_configured() {
    // The first descriptor, which has the fault, is the null descriptor of the start.
    let (driver, src, dst) = with_fault("0000:80:04.0");
    driver.wait(HALTED);
    assert_eq!((&dst.bytes()[..64], &dst.bytes()[64..]), (&src.bytes()[..64], &[0; 64][..]));
    assert_eq!(driver.read::<u32>(CHANERR), 0x0100);

    let (driver, src, dst) = with_fault("0000:80:04.1");
    driver.finish();
    assert_eq!(dst.bytes(), src.bytes(), "the next completion covers a lost one");

    let (mut driver, _, dst) = with_fault("0000:80:04.2");
    // The reset of the start must come after the engine has fetched the descriptor that has the fault.
    driver.wait(ACTIVE);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(dst.bytes(), [0; 128], "stuck");
    driver.start();

    let (driver, src, dst) = with_fault("0000:80:04.3");
    driver.finish();
    assert_eq!(dst.bytes()[0], src.bytes()[0] ^ 1);
    assert_eq!(dst.bytes()[1..], src.bytes()[1..]);

    let (driver, ..) = with_fault("0000:80:04.4");
    wait_until(|| driver.read::<u64>(CHANSTS) == u64::MAX, || "still there".to_owned());
}

#[test]
fn translation_is_by_page() {
    env::set_up(CONFIG);
    let memory = Memory::new(4 << 20, 2 << 20);
    let mut size = 4_u64 << 20;
    // SAFETY: the call only looks the address up, and the size is a local variable.
    let start = unsafe { c::spdk_vtophys(memory.at(100), &mut size) };
    assert_eq!(start, bus(memory.at(0)) + 100);
    assert_eq!(size, (2 << 20) - 100, "consecutive pages are not contiguous for devices");
    assert_eq!(bus(ptr::from_ref(&size).cast()), u64::MAX);
}

#[test]
fn the_size_of_a_translation_is_never_more_than_was_asked_for() {
    env::set_up(CONFIG);
    let memory = Memory::new(2 << 20, 2 << 20);
    let inside = memory.at(100).cast_const();
    let outside = ptr::without_provenance::<c_void>((2 << 20) - 100);
    let nobodys = ptr::without_provenance::<c_void>(1 << 48);
    let translate = |at: *const c_void, mut size: u64| {
        // SAFETY: the size is a local variable. The address is only looked up, and never dereferenced.
        let bus = unsafe { c::spdk_vtophys(at, &raw mut size) };
        (bus != u64::MAX, size)
    };
    // Results of SPDK's `spdk_mem_map_translate`, from 23.05 and 26.05.
    for (at, size, answer) in [
        (inside, 0, (true, 0)),
        (inside, 1, (true, 1)),
        (inside, 64, (true, 64)),
        (outside, 0, (false, 0)),
        (outside, 64, (false, 64)),
        (outside, 4096, (false, 100)),
        (nobodys, 4096, (false, 4096)),
    ] {
        assert_eq!(translate(at, size), answer, "{at:p}, {size}");
    }
    let node = |at: *const c_void, mut size: u64| {
        // SAFETY: the size is a local variable. The address is only looked up, and never dereferenced.
        let node = unsafe { c::spdk_mem_get_numa_id(at, &raw mut size) };
        (node, size)
    };
    assert_eq!((node(inside, 0), node(inside, 64)), ((0, 0), (0, 64)));
    assert_eq!((node(outside, 4096), node(nobodys, 4096)), ((-1, 100), (-1, 4096)));
}
