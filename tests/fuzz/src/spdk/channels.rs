//! Probes, uses and detaches channels, and computes the expected bytes.

use std::ffi::c_void;
use std::ptr;

use super::{Flight, Memory, SpdkProgram, c, call, within};

unsafe extern "C" fn on_probe(wanted: *mut c_void, device: *mut c::spdk_pci_device) -> bool {
    let address = call!(spdk_pci_device_get_addr(device));
    let mut takes = false;
    within(|program| {
        // Attaches one channel, or all channels.
        let which = (wanted.addr() % 8) as u8;
        takes = which >= 5
            || [(0, 0), (0, 1), (0x80, 0), (0x80, 1), (0x81, 0)][usize::from(which)]
                == (address.bus, address.func);
        program.step_in_callback();
    });
    takes
}

unsafe extern "C" fn on_attach(_: *mut c_void, _: *mut c::spdk_pci_device, channel: *mut c::spdk_ioat_chan) {
    within(|program| {
        let mut channels = program.channels.borrow_mut();
        assert!(!channels.contains(&channel), "a channel was attached twice");
        channels.push(channel);
        drop(channels);
        program.step_in_callback();
    });
}

unsafe extern "C" fn on_end(number: *mut c_void) {
    within(|program| {
        let flight = program.flights.borrow_mut()[number.addr()].take();
        let flight =
            flight.filter(|flight| !flight.part).expect("a callback for an operation that is not in flight");
        let ((start, len), bytes) = (flight.dst, &flight.bytes);
        if !flight.contested && len > 0 {
            // SAFETY: the range is the program's memory, which is not freed while an operation is in flight.
            // No device writes these bytes now, because the operation has ended and is not contested.
            let written =
                unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(start), len) };
            assert_eq!(written, bytes, "the copied or filled bytes");
        }
        program.step_in_callback();
    });
}

fn overlap(a: (usize, usize), b: (usize, usize)) -> bool {
    a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
}

impl SpdkProgram {
    pub(super) fn channel_step(&self) {
        let channel = self.input.handle(&self.channels);
        match self.input.byte() % 12 {
            0..3 => self.probe(),
            3 => self.detach(channel),
            4..6 => call!(spdk_ioat_flush(channel)),
            6..9 => {
                let ended = call!(spdk_ioat_process_events(channel));
                assert!(!channel.is_null() || ended < 0);
            }
            9 => {
                call!(spdk_ioat_get_max_descriptors(channel));
                call!(spdk_ioat_get_dma_capabilities(channel));
            }
            _ => {
                // Uses arbitrary addresses and lengths, most of which are refused.
                let (dst, src, len) = (self.anywhere(), self.anywhere(), self.input.number());
                self.submit(channel, dst, Some(src), len);
            }
        }
    }

    fn probe(&self) {
        let wanted = usize::from(self.input.byte());
        call!(spdk_ioat_probe(ptr::without_provenance_mut(wanted), Some(on_probe), Some(on_attach)));
    }

    /// Forgets the operations in flight, whose callbacks are never called.
    fn detach(&self, channel: *mut c::spdk_ioat_chan) {
        call!(spdk_ioat_detach(channel));
        self.channels.borrow_mut().retain(|other| *other != channel);
        for flight in self.flights.borrow_mut().iter_mut() {
            if flight.as_ref().is_some_and(|flight| ptr::eq(flight.channel, channel)) {
                *flight = None;
            }
        }
    }

    /// Returns an address in or near the program's memory.
    fn anywhere(&self) -> *mut c_void {
        let Some(Memory { ptr, len }) = self.input.pick(&self.memory) else {
            return ptr::without_provenance_mut(self.input.number() as usize);
        };
        ptr.wrapping_byte_add(self.input.below(len + 64)).wrapping_byte_sub(self.input.below(2) * 64)
    }

    /// Submits a copy or a fill within the program's memory.
    pub(super) fn copy(&self) {
        if self.channels.borrow().is_empty() {
            self.probe();
        }
        if self.memory.borrow().len() < 2 {
            self.allocate(4096);
        }
        let (Some(to), Some(from)) = (self.input.pick(&self.memory), self.input.pick(&self.memory)) else {
            return;
        };
        let len = self.input.below(to.len.min(from.len) + 1);
        let at = |memory: Memory| memory.ptr.wrapping_byte_add(self.input.below(memory.len - len + 1));
        let (dst, src) = (at(to), at(from));
        let src = if !self.input.byte().is_multiple_of(4) { Some(src) } else { None };
        self.submit(self.input.handle(&self.channels), dst, src, len as u64);
    }

    /// Builds or submits a copy, or a fill if `src` is `None`.
    fn submit(&self, channel: *mut c::spdk_ioat_chan, dst: *mut c_void, src: Option<*mut c_void>, len: u64) {
        let (submit, pattern) = (
            self.input.byte().is_multiple_of(2),
            u64::from(self.input.byte()).wrapping_mul(0x0101_0203_0405_0607),
        );
        let known = |at: *mut c_void| {
            let (start, len) = (at.expose_provenance(), usize::try_from(len).unwrap_or(usize::MAX));
            self.memory.borrow().iter().any(|memory| {
                let base = memory.ptr.addr();
                start >= base && len <= memory.len && start - base <= memory.len - len
            })
        };
        let inside = known(dst) && src.is_none_or(known);
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        // SAFETY: the range was found in the program's memory. If a device writes these bytes at the same
        // time, the operation is marked as contested, and its bytes are not checked.
        let bytes = |at: *mut c_void| unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) }.to_vec();
        let bytes = match src {
            _ if !inside => Vec::new(),
            Some(src) => bytes(src),
            None => pattern.to_le_bytes().into_iter().cycle().take(size).collect(),
        };
        let mut flight = Flight {
            channel,
            dst: (dst.addr(), size),
            src: (src.map_or(0, |src| src.addr()), if src.is_some() { size } else { 0 }),
            bytes,
            contested: !inside,
            part: false,
        };
        flight.contested |= overlap(flight.dst, flight.src);
        // The pattern restarts with each descriptor, and a descriptor does not cross a page of 2 MiB, so
        // such a fill is not checked.
        flight.contested |= src.is_none() && dst.addr() >> 21 != dst.addr().saturating_add(size) >> 21;
        let number = {
            let mut flights = self.flights.borrow_mut();
            flights.push(None);
            flights.len() - 1
        };
        let (arg, end) = (ptr::without_provenance_mut(number), Some(on_end as unsafe extern "C" fn(_)));
        let result = match (src, submit) {
            (Some(src), true) => call!(spdk_ioat_submit_copy(channel, arg, end, dst, src, len)),
            (Some(src), false) => call!(spdk_ioat_build_copy(channel, arg, end, dst, src, len)),
            (None, true) => call!(spdk_ioat_submit_fill(channel, arg, end, dst, pattern, len)),
            (None, false) => call!(spdk_ioat_build_fill(channel, arg, end, dst, pattern, len)),
        };
        if result == -libc::EINVAL && !channel.is_null() {
            flight.part = true;
        } else if result != 0 {
            return;
        }
        assert!(!channel.is_null(), "an operation without a channel");
        let mut flights = self.flights.borrow_mut();
        for other in flights.iter_mut().flatten() {
            let touches = overlap(other.dst, flight.dst)
                || overlap(other.dst, flight.src)
                || overlap(other.src, flight.dst);
            other.contested |= touches;
            flight.contested |= touches;
        }
        flights[number] = Some(flight);
    }
}
