//! The program's calls.

use std::ffi::{CString, c_void};
use std::ptr;

use super::{Buf, Dma, LEN, MemoryProgram, Task, c, call, on_done, on_error, on_free, on_state, oracle};

const OK: c::doca_error_t = c::DOCA_SUCCESS;
const FUNCTIONS: [&str; 3] = ["0000:03:00.0", "0000:03:00.1", "0000:3b:00.0"];

impl MemoryProgram {
    /// Makes one call, or a few related ones.
    pub(super) fn step(&self) {
        match self.input.byte() % 48 {
            0 => self.open(),
            1 => self.close(),
            2..4 => self.progress(),
            4 => self.create_pe(),
            5 => {
                let pe = self.input.handle(&self.pes);
                if call!(doca_pe_destroy(pe)) == OK {
                    self.pes.borrow_mut().retain(|other| *other != pe);
                }
            }
            6 => self.create_dma(),
            7 => self.destroy_dma(),
            8 => {
                call!(doca_pe_connect_ctx(self.input.handle(&self.pes), self.dma().ctx));
            }
            9 => self.configure(),
            10 => {
                call!(doca_ctx_start(self.dma().ctx));
            }
            11 => {
                call!(doca_ctx_stop(self.dma().ctx));
            }
            12 => self.create_mmap(),
            13 => self.set_up_mmap(),
            14 => {
                call!(doca_mmap_start(self.input.handle(&self.mmaps)));
            }
            15 => {
                call!(doca_mmap_stop(self.input.handle(&self.mmaps)));
            }
            16 => {
                let mmap = self.input.handle(&self.mmaps);
                if call!(doca_mmap_destroy(mmap)) == OK {
                    self.mmaps.borrow_mut().retain(|other| *other != mmap);
                }
            }
            17 => self.export(),
            18 => self.import(),
            19 => self.create_inventory(),
            20 => self.use_inventory(),
            21..24 => self.take_buf(),
            24 => self.duplicate(),
            25 => {
                call!(doca_buf_inc_refcount(self.buf(), &mut 0));
            }
            26 => self.release(self.buf()),
            27 => {
                let at = self.address(self.input.byte());
                call!(doca_buf_set_data(self.buf(), at, self.input.below(LEN)));
            }
            28 => {
                call!(doca_buf_reset_data_len(self.buf()));
            }
            29 => {
                call!(doca_buf_set_data_len(self.buf(), self.input.below(600)));
            }
            30..32 => {
                call!(doca_buf_chain_list(self.buf(), self.buf()));
            }
            32 => {
                call!(doca_buf_chain_list_tail(self.buf(), self.buf(), self.buf()));
            }
            33 => {
                call!(doca_buf_unchain_list(self.buf(), self.buf()));
            }
            34..36 => self.allocate(),
            36..39 => {
                if let Some(task) = self.task() {
                    self.submit(task.task, self.input.byte());
                }
            }
            39 => {
                if let Some(task) = self.task() {
                    self.free(task.task);
                }
            }
            40 => {
                if let Some(task) = self.task() {
                    call!(doca_dma_task_memcpy_set_src(task.task, self.buf()));
                    call!(doca_dma_task_memcpy_set_dst(task.task, self.buf()));
                }
            }
            41 => call!(doca_ctx_flush_tasks(self.dma().ctx)),
            42 => self.ask(),
            43 => self.sleep(),
            44 => self.pass_nulls(),
            45 => self.build(),
            _ => self.copy(),
        }
    }

    /// Returns an address in or near one of the two memories.
    fn address(&self, which: u8) -> *mut c_void {
        let at = self.input.below(LEN + 2);
        let base = if which.is_multiple_of(2) { self.source.as_ptr().cast_mut() } else { self.target };
        base.wrapping_add(at).cast()
    }

    fn open(&self) {
        let (mut list, mut count) = (ptr::null_mut(), 0);
        assert_eq!(call!(doca_devinfo_create_list(&mut list, &mut count)), OK);
        let wanted =
            CString::new(FUNCTIONS[usize::from(self.input.byte()) % FUNCTIONS.len()]).expect("no NUL");
        for at in 0..count as usize {
            // SAFETY: the index is within the list, which lives until it is destroyed below.
            let info = unsafe { *list.add(at) };
            let mut equal = 0;
            assert_eq!(call!(doca_devinfo_is_equal_pci_addr(info, wanted.as_ptr(), &mut equal)), OK);
            let mut dev = ptr::null_mut();
            if equal == 1 && call!(doca_dev_open(info, &mut dev)) == OK {
                self.devs.borrow_mut().push(dev);
            }
        }
        assert_eq!(call!(doca_devinfo_destroy_list(list)), OK);
    }

    fn close(&self) {
        let dev = self.input.handle(&self.devs);
        if call!(doca_dev_close(dev)) == OK {
            // Opening a device twice returns the same handle.
            let mut devs = self.devs.borrow_mut();
            if let Some(place) = devs.iter().position(|other| *other == dev) {
                devs.swap_remove(place);
            }
        }
    }

    fn progress(&self) {
        let pe = self.input.handle(&self.pes);
        for _ in 0..=self.input.byte() % 8 {
            // A callback may have destroyed the object.
            if pe.is_null() || self.pes.borrow().contains(&pe) {
                call!(doca_pe_progress(pe));
            }
        }
    }

    fn create_pe(&self) {
        let mut pe = ptr::null_mut();
        assert_eq!(call!(doca_pe_create(&mut pe)), OK);
        self.pes.borrow_mut().push(pe);
    }

    fn create_dma(&self) {
        let mut dma = ptr::null_mut();
        if call!(doca_dma_create(self.input.handle(&self.devs), &mut dma)) == OK {
            let ctx = call!(doca_dma_as_ctx(dma));
            assert_eq!(call!(doca_ctx_set_state_changed_cb(ctx, Some(on_state))), OK);
            self.dmas.borrow_mut().push(Dma { dma, ctx });
        }
    }

    fn destroy_dma(&self) {
        let dma = self.dma().dma;
        if call!(doca_dma_destroy(dma)) == OK {
            self.dmas.borrow_mut().retain(|other| other.dma != dma);
            let left = self.tasks.borrow().iter().any(|task| task.dma == dma);
            assert!(!left, "a context with tasks was destroyed");
        }
    }

    fn configure(&self) {
        let callback = |some: bool, callback| if some { Some(callback) } else { None };
        let (dma, byte) = (self.dma().dma, self.input.byte());
        let done = callback(byte < 250, on_done as unsafe extern "C" fn(_, _, _));
        let error = callback(byte % 50 > 0, on_error as unsafe extern "C" fn(_, _, _));
        call!(doca_dma_task_memcpy_set_conf(dma, done, error, u32::from(byte % 9)));
    }

    fn create_mmap(&self) {
        let mut mmap = ptr::null_mut();
        assert_eq!(call!(doca_mmap_create(&mut mmap)), OK);
        self.mmaps.borrow_mut().push(mmap);
    }

    fn set_up_mmap(&self) {
        let mmap = self.input.handle(&self.mmaps);
        match self.input.byte() % 8 {
            0..2 => self.set_range(mmap, self.input.byte()),
            2 => {
                call!(doca_mmap_add_dev(mmap, self.input.handle(&self.devs)));
            }
            3 => {
                call!(doca_mmap_rm_dev(mmap, self.input.handle(&self.devs)));
            }
            4 => {
                call!(doca_mmap_set_free_cb(mmap, Some(on_free), ptr::null_mut()));
            }
            5 => {
                call!(doca_mmap_set_max_num_devices(mmap, u32::from(self.input.byte() % 4)));
            }
            6 => {
                call!(doca_mmap_enable_thread_safety(mmap));
            }
            _ => {
                call!(doca_mmap_set_user_data(mmap, c::doca_data { u64_: 7 }));
            }
        }
    }

    /// Sets range and rights together, so that the source is never writable.
    fn set_range(&self, mmap: *mut c::doca_mmap, which: u8) {
        let base = if which.is_multiple_of(2) { self.source.as_ptr().cast_mut() } else { self.target };
        let (from, len) =
            if which < 128 { (0, LEN) } else { (self.input.below(LEN), self.input.below(LEN) + 1) };
        let len = len.min(LEN - from);
        let readable = c::DOCA_ACCESS_FLAG_PCI_READ_ONLY;
        let writable = c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | c::DOCA_ACCESS_FLAG_PCI_READ_WRITE;
        let rights = if which.is_multiple_of(2) { readable } else { writable };
        if call!(doca_mmap_set_permissions(mmap, rights)) == OK {
            call!(doca_mmap_set_memrange(mmap, base.wrapping_add(from).cast(), len));
        }
    }

    fn export(&self) {
        let (mmap, dev) = (self.input.handle(&self.mmaps), self.input.handle(&self.devs));
        let (mut bytes, mut len) = (ptr::null(), 0);
        let code = if !self.input.byte().is_multiple_of(4) {
            call!(doca_mmap_export_pci(mmap, dev, &mut bytes, &mut len))
        } else {
            call!(doca_mmap_export_rdma(mmap, dev, &mut bytes, &mut len))
        };
        if code == OK {
            // SAFETY: the call has succeeded, so `bytes` is the map's descriptor of `len` bytes. The map
            // keeps its descriptor until it is stopped.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
            self.exports.borrow_mut().push(bytes.to_vec());
        }
    }

    fn import(&self) {
        let place = usize::from(self.input.byte());
        let descriptor = {
            let exports = self.exports.borrow();
            if exports.is_empty() { Vec::new() } else { exports[place % exports.len()].clone() }
        };
        let (mut altered, change) = (descriptor.clone(), self.input.byte());
        if change >= 128 && !altered.is_empty() {
            let at = self.input.below(altered.len());
            altered[at] ^= change;
            altered.truncate(if change >= 192 { at } else { usize::MAX });
        }
        let user_data = c::doca_data { u64_: 5 };
        let mut mmap = ptr::null_mut();
        let (bytes, len) = (altered.as_ptr().cast(), altered.len());
        let dev = self.input.handle(&self.devs);
        if call!(doca_mmap_create_from_export(&user_data, bytes, len, dev, &mut mmap)) == OK {
            assert_eq!(altered, descriptor, "an altered descriptor was accepted");
            self.mmaps.borrow_mut().push(mmap);
        }
    }

    fn create_inventory(&self) {
        let mut inventory = ptr::null_mut();
        if call!(doca_buf_inventory_create(usize::from(self.input.byte() % 20), &mut inventory)) == OK {
            self.inventories.borrow_mut().push(inventory);
        }
    }

    fn use_inventory(&self) {
        let inventory = self.input.handle(&self.inventories);
        match self.input.byte() % 6 {
            0..3 => {
                call!(doca_buf_inventory_start(inventory));
            }
            3 => {
                call!(doca_buf_inventory_stop(inventory));
            }
            4 => {
                call!(doca_buf_inventory_expand(inventory, u32::from(self.input.byte() % 9)));
            }
            _ => {
                if call!(doca_buf_inventory_destroy(inventory)) == OK {
                    self.inventories.borrow_mut().retain(|other| *other != inventory);
                    let left = self.bufs.borrow().iter().any(|buf| buf.inventory == inventory);
                    assert!(!left, "an inventory with live buffers was destroyed");
                }
            }
        }
    }

    fn take_buf(&self) {
        let (inventory, mmap) = (self.input.handle(&self.inventories), self.input.handle(&self.mmaps));
        let which = self.input.byte();
        let (addr, len) = (self.address(which), self.input.below(700));
        let (skip, data_len) = (self.input.below(len + 2), self.input.below(len + 2));
        let data = if which < 200 { addr.cast::<u8>().wrapping_add(skip).cast() } else { addr };
        let mut buf = ptr::null_mut();
        let args = (inventory, mmap, addr, len, data, data_len);
        if call!(doca_buf_inventory_buf_get_by_args(args.0, args.1, args.2, args.3, args.4, args.5, &mut buf))
            == OK
        {
            self.bufs.borrow_mut().push(Buf { buf, inventory });
        }
    }

    fn duplicate(&self) {
        let (inventory, mut head) = (self.input.handle(&self.inventories), ptr::null_mut());
        if call!(doca_buf_inventory_buf_dup(inventory, self.buf(), &mut head)) != OK {
            return;
        }
        while !head.is_null() {
            self.bufs.borrow_mut().push(Buf { buf: head, inventory });
            let mut next = ptr::null_mut();
            assert_eq!(call!(doca_buf_get_next_in_list(head, &mut next)), OK);
            head = next;
        }
    }

    /// Releases one reference. Releasing the last reference frees the list. The call returns the
    /// previous number of references.
    pub(super) fn release(&self, buf: *mut c::doca_buf) {
        let mut members = vec![buf];
        let mut next = buf;
        while !next.is_null() && call!(doca_buf_get_next_in_list(next, &mut next)) == OK {
            members.push(next);
        }
        let mut refs = u16::MAX;
        if call!(doca_buf_dec_refcount(buf, &mut refs)) == OK && refs == 1 {
            self.bufs.borrow_mut().retain(|other| !members.contains(&other.buf));
        }
    }

    fn allocate(&self) {
        let dma = self.dma().dma;
        let (src, dst) = (self.buf(), self.buf());
        self.allocate_with(dma, src, dst);
    }

    fn allocate_with(
        &self,
        dma: *mut c::doca_dma,
        src: *mut c::doca_buf,
        dst: *mut c::doca_buf,
    ) -> Option<Task> {
        let mut task = ptr::null_mut();
        let user_data = c::doca_data { u64_: 1 };
        if call!(doca_dma_task_memcpy_alloc_init(dma, src, dst, user_data, &mut task)) != OK {
            return None;
        }
        let task = Task { task, dma, flight: None, freed: false };
        self.tasks.borrow_mut().push(task);
        Some(task)
    }

    pub(super) fn submit(&self, memcpy: *mut c::doca_dma_task_memcpy, how: u8) {
        let src = call!(doca_dma_task_memcpy_get_src(memcpy)).cast_mut();
        let dst = call!(doca_dma_task_memcpy_get_dst(memcpy));
        // A task with a freed buffer is not submitted, because that would pass a dead handle.
        let given_back = |buf: *mut c::doca_buf| !buf.is_null() && !self.owns_buf(buf);
        if given_back(src) || given_back(dst) {
            return;
        }
        let flight = self.oracle.borrow_mut().start(oracle::plan(self, src, dst));
        let task = call!(doca_dma_task_memcpy_as_task(memcpy));
        let code = match how % 8 {
            0..3 => call!(doca_task_submit(task)),
            3 => call!(doca_task_try_submit(task)),
            4 => call!(doca_task_submit_ex(task, c::DOCA_TASK_SUBMIT_FLAG_NONE)),
            5 => call!(doca_task_submit_ex(task, c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS)),
            6 => call!(doca_task_submit_ex(task, 3)),
            _ => call!(doca_task_submit_ex(task, u32::from(how))),
        };
        if code != OK {
            return self.oracle.borrow_mut().forget(flight);
        }
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.iter_mut().find(|task| task.task == memcpy).expect("picked from these");
        assert!(task.flight.replace(flight).is_none(), "a task in flight was submitted");
    }

    pub(super) fn free(&self, memcpy: *mut c::doca_dma_task_memcpy) {
        let task = call!(doca_dma_task_memcpy_as_task(memcpy));
        call!(doca_task_free(task));
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| task.task != memcpy || task.flight.is_some());
        tasks.iter_mut().filter(|task| task.task == memcpy).for_each(|task| task.freed = true);
    }

    /// Picks a task that was not freed.
    fn task(&self) -> Option<Task> {
        self.input.pick(&self.tasks).filter(|task| !task.freed)
    }

    /// Makes queries, which change no object.
    fn ask(&self) {
        let dma = self.dma();
        let mut in_flight = usize::MAX;
        if call!(doca_ctx_get_num_inflight_tasks(dma.ctx, &mut in_flight)) == OK {
            let tasks = self.tasks.borrow();
            let counted = tasks.iter().filter(|task| task.dma == dma.dma && task.flight.is_some()).count();
            assert_eq!(in_flight, counted, "tasks in flight");
        }
        let (mut count, mut flag, mut long) = (0, 0, 0);
        call!(doca_pe_get_num_inflight_tasks(self.input.handle(&self.pes), &mut in_flight));
        call!(doca_mmap_get_num_bufs(self.input.handle(&self.mmaps), &mut count));
        call!(doca_mmap_get_exported(self.input.handle(&self.mmaps), &mut flag));
        call!(doca_buf_inventory_get_num_free_elements(self.input.handle(&self.inventories), &mut count));
        let buf = self.buf();
        call!(doca_buf_get_list_len(buf, &mut count));
        call!(doca_buf_is_last_in_list(buf, &mut flag));
        call!(doca_buf_get_last_in_list(buf, &mut ptr::null_mut()));
        let info = call!(doca_dev_as_devinfo(self.input.handle(&self.devs)));
        call!(doca_dma_cap_task_memcpy_is_supported(info));
        call!(doca_dma_cap_task_memcpy_get_max_buf_size(info, &mut long));
        call!(doca_dma_cap_get_max_num_tasks(dma.dma, &mut count));
        if let Some(task) = self.task() {
            let task = call!(doca_dma_task_memcpy_as_task(task.task));
            assert!(!call!(doca_task_get_ctx(task)).is_null());
            call!(doca_task_get_status(task));
        }
    }

    fn sleep(&self) {
        let (pe, mut handle) = (self.input.handle(&self.pes), -1);
        call!(doca_pe_get_notification_handle(pe, &mut handle));
        match self.input.byte() % 4 {
            0..2 => call!(doca_pe_request_notification(pe)),
            2 => call!(doca_pe_clear_notification(pe, handle)),
            _ => call!(doca_pe_set_event_mode(pe, u32::from(self.input.byte() % 3))),
        };
    }

    fn pass_nulls(&self) {
        let (buf, dma, pe) = (self.buf(), self.dma(), self.input.handle(&self.pes));
        let codes = [
            call!(doca_pe_create(ptr::null_mut())),
            call!(doca_dma_create(self.input.handle(&self.devs), ptr::null_mut())),
            call!(doca_mmap_create(ptr::null_mut())),
            call!(doca_buf_get_data(buf, ptr::null_mut())),
            call!(doca_ctx_get_state(dma.ctx, ptr::null_mut())),
            call!(doca_pe_connect_ctx(pe, ptr::null_mut())),
            call!(doca_pe_connect_ctx(ptr::null_mut(), dma.ctx)),
            call!(doca_buf_chain_list(buf, ptr::null_mut())),
            call!(doca_task_submit(ptr::null_mut())),
            call!(doca_mmap_get_memrange(self.input.handle(&self.mmaps), ptr::null_mut(), ptr::null_mut())),
        ];
        assert!(!codes.contains(&OK), "{codes:?}");
        call!(doca_task_free(ptr::null_mut()));
        call!(doca_ctx_flush_tasks(ptr::null_mut()));
        assert_eq!(call!(doca_pe_progress(ptr::null_mut())), 0);
    }

    /// Creates objects in most programs, so that later calls can misuse them.
    fn build(&self) {
        self.open();
        let Some(&dev) = self.devs.borrow().last() else { return };
        for which in 0..2 {
            self.create_mmap();
            let mmap = *self.mmaps.borrow().last().expect("just made");
            self.set_range(mmap, which);
            call!(doca_mmap_add_dev(mmap, dev));
            call!(doca_mmap_start(mmap));
        }
        let mut inventory = ptr::null_mut();
        assert_eq!(call!(doca_buf_inventory_create(16, &mut inventory)), OK);
        call!(doca_buf_inventory_start(inventory));
        self.inventories.borrow_mut().push(inventory);
        self.create_pe();
        self.create_dma();
        let (pe, dma) = (self.pes.borrow().last().copied(), self.dmas.borrow().last().copied());
        if let (Some(pe), Some(dma)) = (pe, dma) {
            call!(doca_pe_connect_ctx(pe, dma.ctx));
            call!(doca_dma_task_memcpy_set_conf(dma.dma, Some(on_done), Some(on_error), 8));
            call!(doca_ctx_start(dma.ctx));
        }
    }

    /// Submits a correct copy, if the objects for it exist.
    fn copy(&self) {
        let (inventory, dma) = (self.input.handle(&self.inventories), self.dma().dma);
        let len = self.input.below(500) + 1;
        let (from, to) = (self.input.below(LEN - len), self.input.below(LEN - len));
        let source = self.source.as_ptr().cast_mut().wrapping_add(from).cast::<c_void>();
        let target = self.target.wrapping_add(to).cast::<c_void>();
        let take = |at, data_len| {
            let mut buf = ptr::null_mut();
            let mmaps = self.mmaps.borrow().clone();
            let found = mmaps.into_iter().any(|mmap| {
                call!(doca_buf_inventory_buf_get_by_args(inventory, mmap, at, len, at, data_len, &mut buf))
                    == OK
            });
            found.then(|| {
                self.bufs.borrow_mut().push(Buf { buf, inventory });
                buf
            })
        };
        if let (Some(src), Some(dst)) = (take(source, len), take(target, 0))
            && let Some(task) = self.allocate_with(dma, src, dst)
        {
            self.submit(task.task, self.input.byte());
        }
    }
}
