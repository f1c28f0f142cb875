//! Calls of the environment: memory, pools, rings, zones, maps, threads, PCI functions, text.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use super::{Memory, SpdkProgram, c, call, within};

const NAMES: [&std::ffi::CStr; 4] = [c"a", c"b", c"", c"a name longer than the limit of pools and zones"];

unsafe extern "C" fn on_object(_: *mut c::spdk_mempool, _: *mut c_void, object: *mut c_void, _: u32) {
    assert!(!object.is_null());
    within(SpdkProgram::step_in_callback);
}

unsafe extern "C" fn on_notify(
    _: *mut c_void,
    _: *mut c::spdk_mem_map,
    _: c::spdk_mem_map_notify_action,
    _: *mut c_void,
    _: usize,
) -> c_int {
    0
}

unsafe extern "C" fn on_thread(_: *mut c_void) -> c_int {
    // Runs a second program on another thread. The two programs share only the environment.
    let memory = call!(spdk_dma_zmalloc(64, 64, ptr::null_mut()));
    call!(spdk_vtophys(memory, ptr::null_mut()));
    call!(spdk_env_get_current_core());
    call!(spdk_env_thread_wait_all());
    call!(spdk_dma_free(memory));
    0
}

unsafe extern "C" fn on_device(_: *mut c_void, device: *mut c::spdk_pci_device) {
    within(|program| program.ask(device));
}

unsafe extern "C" fn on_enumerate(_: *mut c_void, device: *mut c::spdk_pci_device) -> c_int {
    within(|program| program.ask(device));
    // A result other than 0 means that the program does not attach the device.
    1
}

impl SpdkProgram {
    fn name(&self) -> *const c_char {
        let byte = usize::from(self.input.byte());
        if byte >= 250 { ptr::null() } else { NAMES[byte % NAMES.len()].as_ptr() }
    }

    pub(super) fn allocate(&self, len: usize) {
        let align = 1_usize << (self.input.byte() % 13);
        let ptr = call!(spdk_dma_zmalloc(len, align, ptr::null_mut()));
        if ptr.is_null() {
            return;
        }
        assert!(ptr.addr().is_multiple_of(align.max(64)), "alignment");
        // SAFETY: the memory was allocated above with this length and zeroed, and only this function knows
        // its address.
        let bytes = unsafe { std::slice::from_raw_parts_mut(ptr.cast::<u8>(), len) };
        assert!(bytes.iter().all(|byte| *byte == 0), "zeroed");
        let salt = self.input.byte();
        bytes.iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = (at * 7) as u8 ^ salt);
        self.keep(Memory { ptr, len });
    }

    fn keep(&self, new: Memory) {
        for Memory { ptr, len } in &*self.memory.borrow() {
            let apart = ptr.addr() + len <= new.ptr.addr() || new.ptr.addr() + new.len <= ptr.addr();
            assert!(apart, "memory was allocated twice");
        }
        self.memory.borrow_mut().push(new);
    }

    /// Removes and returns memory that no operation in flight uses.
    fn take_memory(&self) -> Option<Memory> {
        let memory = self.input.pick(&self.memory)?;
        let range = memory.ptr.addr()..memory.ptr.addr() + memory.len;
        let named = self.flights.borrow().iter().flatten().any(|flight| {
            [flight.dst, flight.src]
                .iter()
                .any(|(at, len)| *at < range.end && range.start < at.saturating_add(*len))
        });
        if named {
            return None;
        }
        self.memory.borrow_mut().retain(|other| other.ptr != memory.ptr);
        Some(memory)
    }

    pub(super) fn memory_step(&self) {
        match self.input.byte() % 8 {
            0..2 => self.allocate(self.input.below(10_000)),
            2 => {
                // Passes unusual arguments. If memory is returned, it is freed.
                let (len, align) = (self.input.number() as usize, self.input.number() as usize);
                let (socket, flags) = (c_int::from(self.input.byte()) - 1, u32::from(self.input.byte()));
                let ptr = call!(spdk_malloc(len, align, ptr::null_mut(), socket, flags));
                call!(spdk_free(ptr));
            }
            3 => {
                if let Some(memory) = self.take_memory() {
                    call!(spdk_dma_free(memory.ptr));
                }
            }
            4 => {
                let Some(memory) = self.take_memory() else { return };
                let len = self.input.below(10_000) + 1;
                let ptr = call!(spdk_realloc(memory.ptr, len, 64));
                self.keep(if ptr.is_null() { memory } else { Memory { ptr, len } });
            }
            5 => {
                let Some(Memory { ptr, len }) = self.input.pick(&self.memory) else { return };
                let mut room = len as u64;
                assert_ne!(call!(spdk_vtophys(ptr, &mut room)), c::SPDK_VTOPHYS_ERROR as u64);
                assert!(room > 0 && room <= len as u64, "{room} of {len}");
                call!(spdk_mem_get_numa_id(ptr, &mut room));
                call!(spdk_mem_get_fd_and_offset(ptr, &mut room));
            }
            6 => {
                let mut room = self.input.number();
                call!(spdk_vtophys(ptr::without_provenance(self.input.number() as usize), &mut room));
            }
            _ => {
                // These calls must fail, because no memory of the program begins at a page of 2 MiB.
                let at = ptr::without_provenance_mut(self.input.number() as usize | 1);
                assert_ne!(call!(spdk_mem_register(at, self.input.number() as usize)), 0);
                assert_ne!(call!(spdk_mem_unregister(at, self.input.number() as usize)), 0);
            }
        }
    }

    pub(super) fn pool_step(&self) {
        let pool = self.input.handle(&self.pools);
        match self.input.byte() % 8 {
            0 => {
                let (count, size) = (self.input.below(40), self.input.below(300));
                let init = self
                    .input
                    .byte()
                    .is_multiple_of(2)
                    .then_some(on_object as unsafe extern "C" fn(_, _, _, _));
                let pool =
                    call!(spdk_mempool_create_ctor(self.name(), count, size, 0, -1, init, ptr::null_mut()));
                if !pool.is_null() {
                    self.pools.borrow_mut().push(pool);
                }
            }
            1 => {
                self.pools.borrow_mut().retain(|other| *other != pool);
                self.elements.borrow_mut().retain(|(of, _)| *of != pool);
                call!(spdk_mempool_free(pool));
            }
            2 => {
                let element = call!(spdk_mempool_get(pool));
                if !element.is_null() {
                    let mut elements = self.elements.borrow_mut();
                    assert!(
                        !elements.iter().any(|(_, other)| *other == element),
                        "the pool returned an element twice"
                    );
                    elements.push((pool, element));
                }
            }
            3 => {
                let mut some = [ptr::null_mut(); 16];
                let count = self.input.below(17);
                if call!(spdk_mempool_get_bulk(pool, some.as_mut_ptr(), count)) == 0 {
                    let mut elements = self.elements.borrow_mut();
                    elements.extend(some[..count].iter().map(|element| (pool, *element)));
                }
            }
            4 => {
                if let Some((pool, element)) = self.input.pick(&self.elements) {
                    self.elements.borrow_mut().retain(|(_, other)| *other != element);
                    call!(spdk_mempool_put(pool, element));
                }
            }
            5 => {
                call!(spdk_mempool_count(pool));
                call!(spdk_mempool_get_name(pool));
                call!(spdk_mempool_lookup(self.name()));
            }
            6 => {
                // The pool must exist during the calls.
                let depth = self.depth.replace(super::NESTING);
                call!(spdk_mempool_obj_iter(pool, Some(on_object), ptr::null_mut()));
                self.depth.set(depth);
            }
            _ => {
                let mut out = self.elements.borrow_mut();
                let mut mine: Vec<_> =
                    out.iter().filter(|(of, _)| *of == pool).map(|(_, element)| *element).collect();
                out.retain(|(of, _)| *of != pool);
                call!(spdk_mempool_put_bulk(pool, mine.as_mut_ptr(), mine.len()));
            }
        }
    }

    pub(super) fn ring_step(&self) {
        let ring = self.input.handle(&self.rings);
        let mut objects: [*mut c_void; 16] = std::array::from_fn(ptr::without_provenance_mut);
        let count = self.input.below(17);
        match self.input.byte() % 5 {
            0 => {
                let ring =
                    call!(spdk_ring_create(u32::from(self.input.byte() % 4), self.input.below(70), -1));
                if !ring.is_null() {
                    self.rings.borrow_mut().push(ring);
                }
            }
            1 => {
                self.rings.borrow_mut().retain(|other| *other != ring);
                call!(spdk_ring_free(ring));
            }
            2 => {
                let before = call!(spdk_ring_count(ring));
                let mut room = 0;
                let taken = call!(spdk_ring_enqueue(ring, objects.as_mut_ptr(), count, &mut room));
                assert_eq!(call!(spdk_ring_count(ring)), before + taken);
            }
            3 => {
                let before = call!(spdk_ring_count(ring));
                let taken = call!(spdk_ring_dequeue(ring, objects.as_mut_ptr(), count));
                assert_eq!(call!(spdk_ring_count(ring)) + taken, before);
                assert!(taken <= count && objects[..taken].iter().all(|object| object.addr() < 16));
            }
            _ => {
                call!(spdk_ring_count(ring));
            }
        }
    }

    pub(super) fn zone_step(&self) {
        let name = self.name();
        match self.input.byte() % 3 {
            0 => {
                let (len, flags) = (self.input.below(10_000), u32::from(self.input.byte()));
                let align = self.input.number() as u32;
                if !call!(spdk_memzone_reserve_aligned(name, len, -1, flags, align)).is_null() {
                    self.zones.borrow_mut().push(name);
                }
            }
            1 => {
                call!(spdk_memzone_lookup(name));
            }
            _ => {
                if call!(spdk_memzone_free(name)) == 0 {
                    self.zones.borrow_mut().retain(|other| *other != name);
                }
            }
        }
    }

    pub(super) fn map_step(&self) {
        const PAGE: u64 = 2 << 20;
        let map = self.input.handle(&self.maps);
        // Uses any address, which is sometimes the start of a page of 2 MiB.
        let number = |_| {
            if self.input.byte().is_multiple_of(2) {
                self.input.below(100) as u64 * PAGE
            } else {
                self.input.number()
            }
        };
        let [at, size, to] = std::array::from_fn(number);
        match self.input.byte() % 6 {
            0 => {
                let ops = c::spdk_mem_map_ops { notify_cb: Some(on_notify), are_contiguous: None };
                let ops = if self.input.byte().is_multiple_of(2) { &raw const ops } else { ptr::null() };
                let map = call!(spdk_mem_map_alloc(to, ops, ptr::null_mut()));
                if !map.is_null() {
                    self.maps.borrow_mut().push(map);
                }
            }
            1 => {
                self.maps.borrow_mut().retain(|other| *other != map);
                let mut map = map;
                call!(spdk_mem_map_free(&mut map));
                assert!(map.is_null());
            }
            // Uses few pages, because each page has an entry.
            2 => {
                call!(spdk_mem_map_set_translation(map, at, size % (64 * PAGE), to));
            }
            3 => {
                call!(spdk_mem_map_clear_translation(map, at, size % (64 * PAGE)));
            }
            _ => {
                let mut room = size;
                call!(spdk_mem_map_translate(map, at, &mut room));
            }
        }
    }

    pub(super) fn thread_step(&self) {
        let core = u32::from(self.input.byte() % 5);
        call!(spdk_env_thread_launch_pinned(core, Some(on_thread), ptr::null_mut()));
        call!(spdk_env_thread_wait_all());
        call!(spdk_env_get_next_core(self.input.number() as u32));
        call!(spdk_env_get_numa_id(self.input.number() as u32));
        call!(spdk_env_get_next_numa_id(self.input.number() as i32));
        call!(spdk_get_ticks());
        call!(spdk_delay_us(u32::from(self.input.byte() % 2)));
    }

    /// Queries a PCI function, and accesses its configuration space.
    fn ask(&self, device: *mut c::spdk_pci_device) {
        let mut room = [0_u8; 64];
        let (len, offset) = (self.input.below(65) as u32, self.input.number() as u32);
        call!(spdk_pci_device_cfg_read(device, room.as_mut_ptr().cast(), len, offset));
        call!(spdk_pci_device_cfg_write(device, room.as_mut_ptr().cast(), len, offset));
        call!(spdk_pci_device_cfg_read32(device, room.as_mut_ptr().cast(), offset));
        call!(spdk_pci_device_get_id(device));
        call!(spdk_pci_device_get_type(device));
        call!(spdk_pci_device_is_removed(device));
        call!(spdk_pci_device_get_serial_number(device, room.as_mut_ptr().cast(), self.input.below(65)));
        if call!(spdk_pci_device_claim(device)) >= 0 {
            call!(spdk_pci_device_unclaim(device));
        }
    }

    pub(super) fn pci_step(&self) {
        match self.input.byte() % 4 {
            0 => call!(spdk_pci_for_each_device(ptr::null_mut(), Some(on_device))),
            1 => {
                let driver = call!(spdk_pci_ioat_get_driver());
                call!(spdk_pci_enumerate(driver, Some(on_enumerate), ptr::null_mut()));
            }
            2 => {
                let driver = call!(spdk_pci_ioat_get_driver());
                let mut address = c::spdk_pci_addr {
                    domain: 0,
                    bus: self.input.byte(),
                    dev: 4,
                    func: self.input.byte() % 9,
                };
                call!(spdk_pci_device_attach(driver, Some(on_enumerate), ptr::null_mut(), &mut address));
                call!(spdk_pci_device_allow(&mut address));
            }
            _ => {
                call!(spdk_pci_enumerate(ptr::null_mut(), Some(on_enumerate), ptr::null_mut()));
            }
        }
    }

    /// Parses and prints text.
    pub(super) fn text_step(&self) {
        let len = self.input.below(40);
        let bytes: Vec<u8> = (0..len).map(|_| self.input.byte()).filter(|byte| *byte != 0).collect();
        let text = CString::new(bytes).expect("no NUL");
        let mut address = c::spdk_pci_addr { domain: 0, bus: 0, dev: 0, func: 0 };
        if call!(spdk_pci_addr_parse(&mut address, text.as_ptr())) == 0 {
            let mut room = [0 as c_char; 64];
            assert_eq!(call!(spdk_pci_addr_fmt(room.as_mut_ptr(), self.input.below(20) + 40, &address)), 0);
            let mut again = address;
            assert_eq!(call!(spdk_pci_addr_parse(&mut again, room.as_ptr())), 0);
            assert_eq!(call!(spdk_pci_addr_compare(&address, &again)), 0);
        }
        let set = call!(spdk_cpuset_alloc());
        if call!(spdk_cpuset_parse(set, text.as_ptr())) == 0 {
            assert!(!call!(spdk_cpuset_fmt(set)).is_null());
            let count = call!(spdk_cpuset_count(set));
            call!(spdk_cpuset_negate(set));
            assert_eq!(call!(spdk_cpuset_count(set)) + count, c::SPDK_CPUSET_SIZE);
            call!(spdk_cpuset_set_cpu(set, self.input.number() as u32, true));
            call!(spdk_cpuset_get_cpu(set, self.input.number() as u32));
        }
        self.sets.borrow_mut().push(set);
        let other = self.input.handle(&self.sets);
        if !other.is_null() {
            call!(spdk_cpuset_and(set, other));
            call!(spdk_cpuset_xor(set, other));
            call!(spdk_cpuset_equal(set, other));
        }
        call!(spdk_log_set_flag(text.as_ptr()));
        call!(spdk_log_get_flag(text.as_ptr()));
        call!(spdk_log_clear_flag(text.as_ptr()));
        let (file, format) = (c"file".as_ptr(), c"%s".as_ptr());
        call!(spdk_log(c_int::from(self.input.byte() % 8) - 1, file, 1, file, format, text.as_ptr()));
    }

    /// Passes NULL to calls that must accept it.
    pub(super) fn pass_nulls(&self) {
        let (none, channel) = (ptr::null_mut::<c_void>(), self.input.handle(&self.channels));
        let memory = self.input.pick(&self.memory).map_or(none, |memory| memory.ptr);
        assert_ne!(call!(spdk_ioat_probe(none, None, None)), 0);
        assert_ne!(call!(spdk_ioat_submit_copy(ptr::null_mut(), none, None, memory, memory, 1)), 0);
        assert_ne!(call!(spdk_ioat_build_copy(channel, none, None, none, memory, 1)), 0);
        assert_ne!(call!(spdk_env_init(ptr::null())), 1);
        assert!(call!(spdk_mempool_get(ptr::null_mut())).is_null());
        assert_eq!(call!(spdk_ring_count(ptr::null_mut())), 0);
        call!(spdk_ioat_detach(ptr::null_mut()));
        call!(spdk_ioat_flush(ptr::null_mut()));
        call!(spdk_dma_free(none));
        call!(spdk_mempool_free(ptr::null_mut()));
        call!(spdk_ring_free(ptr::null_mut()));
        call!(spdk_mem_map_free(ptr::null_mut()));
        call!(spdk_cpuset_free(ptr::null_mut()));
        call!(spdk_pci_device_detach(ptr::null_mut()));
        call!(spdk_env_opts_init(ptr::null_mut()));
    }

    /// Frees every object of the environment that the program still has.
    pub(super) fn give_back(&self) {
        self.memory.take().into_iter().for_each(|memory| call!(spdk_dma_free(memory.ptr)));
        self.pools.take().into_iter().for_each(|pool| call!(spdk_mempool_free(pool)));
        self.rings.take().into_iter().for_each(|ring| call!(spdk_ring_free(ring)));
        self.sets.take().into_iter().for_each(|set| call!(spdk_cpuset_free(set)));
        for name in self.zones.take() {
            assert_eq!(call!(spdk_memzone_free(name)), 0, "freeing a reserved zone");
        }
        for mut map in self.maps.take() {
            call!(spdk_mem_map_free(&mut map));
        }
    }
}
