//! Uses a device's own memory, such as a GPU's. Bytes are copied to it and back by DMA, because the
//! CPU cannot access it.
//!
//! `cargo run --example 16_device_memory [NAME]`, such as `cuda:0`

use std::collections::VecDeque;

use dma::prelude::*;
use dma::{Capabilities, DeviceMemory, Place};

const BLOCK: usize = 1 << 20;
const BLOCKS: u8 = 32;

fn main() -> dma::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "sim:device_memory=64M".to_owned());
    let engine = dma::open(&name)?;
    assert!(engine.info().places().any(|place| place == Place::Device), "{name} has no device memory");
    let queue = engine.open_queue(&QueueOptions::new())?;

    // Streams blocks to the device and back through four windows, several blocks at once.
    let windows = WindowPool::new(&engine, &PoolOptions::new().with_class(BLOCK, 4))?;
    let (mut there, mut back, mut right) = (VecDeque::new(), VecDeque::new(), 0);
    for number in 0..BLOCKS {
        let mut block = engine.allocate(BLOCK)?;
        block.fill(number);
        there.push_back((number, queue.copy(block, windows.try_get(BLOCK)?)?));
        if there.len() + back.len() == 4 || number + 1 == BLOCKS {
            for (number, copy) in there.drain(..) {
                let (block, window) = copy.wait()?;
                // The host's block is free again, so it serves as the destination of the copy back.
                back.push_back((number, queue.copy(window, block)?));
            }
            for (number, copy) in back.drain(..) {
                let (_, block) = copy.wait()?;
                right += usize::from(block.iter().all(|byte| *byte == number));
            }
        }
    }

    // Fills, comparisons and checksums also work in device memory: the device executes them, or the
    // bytes go through host memory.
    let window = queue.fill(engine.allocate_device(BLOCK)?, *b"dma!dma!")?.wait()?;
    let ((window, other), differs) = queue.compare(window, engine.allocate_device(BLOCK)?)?.wait()?;
    assert_eq!(differs, Some(0));
    drop(other);

    // Registers memory that another library allocated on the device. This example uses the memory
    // of `window`.
    if engine.info().capabilities.contains(Capabilities::REGISTER_DEVICE) {
        let addr = window.region().as_raw().info().addr;
        #[expect(unsafe_code, reason = "names device memory by its address")]
        // SAFETY: `addr` is the device's address of the window's bytes. The window is passed as the
        // owner and keeps the memory allocated, and no references to the memory exist.
        let memory = unsafe { DeviceMemory::from_raw(addr, window.len(), window) };
        let registered = engine.register_device(memory)?;
        let (_, bytes) = queue.copy(registered.slice(..8), engine.allocate(8)?)?.wait()?;
        assert_eq!(bytes[..], *b"dma!dma!");
    }
    println!("{right} blocks were copied to device memory and back, through 4 windows");
    Ok(())
}
