//! Random sequences of calls to the functions of DOCA 1.5 and 2.2: maps, buffers, contexts, work queues,
//! jobs, and the comm channel. The program passes only NULL and live handles, but in any state and order.
#![expect(unsafe_code, reason = "calls a C interface")]

mod channel;
mod teardown;

use std::cell::RefCell;
use std::ptr;

use doca_sys::bindings as now;
use doca_sys::workq::bindings as c;

use crate::input::Input;

/// Calls a function of the C interface.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: arguments are NULL or live objects, pointers to results are those of local variables, and
        // memory that is passed outlives the run.
        unsafe { c::$function($($argument),*) }
    };
}
use call;

const OK: now::doca_error_t = now::DOCA_SUCCESS;
/// Configurations of the card: default, slow, failing, limited.
const CARDS: [&str; 6] = [
    "",
    "profile = 'bluefield3'\nclock = 'virtual'",
    "order = 'any'\nfaults = 'fail@3+reset@7'",
    "faults = 'refuse:p=0.2+fail@every=9'\nclock = 'virtual'\nprofile = 'bluefield3'",
    "queue_depth = 2\nmax_tasks = 3\nmax_buf_size = 100\nover_limit = 'submit'",
    "memlock = 6000\nmax_contexts = 1\ncomch = { max_msg_size = 100, max_clients = 1 }",
];
/// Length of each of the two memories in bytes.
const LEN: usize = 4096;
/// PCI addresses of the card's functions on the DPU and on the host.
const PCI: [&std::ffi::CStr; 2] = [c"0000:03:00.0", c"0000:3b:00.0"];

/// A buffer. Its range begins at an offset of the source or the target.
#[derive(Clone, Copy)]
struct Buf {
    buf: *mut now::doca_buf,
    start: usize,
    len: usize,
}

/// A submitted job.
#[derive(Clone, Copy)]
struct Job {
    queue: *mut c::doca_workq,
    to: usize,
    len: usize,
}

/// A connection and its endpoint.
#[derive(Clone, Copy)]
struct Peer {
    peer: *mut c::doca_comm_channel_addr_t,
    ep: *mut c::doca_comm_channel_ep_t,
}

/// The program's objects. Every copy keeps the offset modulo 256, so a byte of the target always has its
/// initial value or the source's value.
struct WorkQueueProgram {
    input: Input,
    source: *mut u8,
    target: *mut u8,
    devs: [*mut now::doca_dev; 2],
    rep: *mut now::doca_dev_rep,
    maps: RefCell<Vec<*mut now::doca_mmap>>,
    /// Each map, and whether it is the map of the target.
    of: RefCell<Vec<(*mut now::doca_mmap, bool)>>,
    inventory: *mut now::doca_buf_inventory,
    sources: RefCell<Vec<Buf>>,
    targets: RefCell<Vec<Buf>>,
    contexts: RefCell<Vec<*mut now::doca_dma>>,
    queues: RefCell<Vec<*mut c::doca_workq>>,
    jobs: RefCell<Vec<(u64, Job)>>,
    submitted: RefCell<u64>,
    endpoints: RefCell<Vec<*mut c::doca_comm_channel_ep_t>>,
    peers: RefCell<Vec<Peer>>,
    /// Bytes in ascending order. Each message is a part of these bytes.
    text: Vec<u8>,
}

fn copied(at: usize) -> u8 {
    at as u8
}

fn initial(at: usize) -> u8 {
    !copied(at)
}

/// Runs a program that the input determines: the first byte chooses the card, the other bytes the calls
/// and arguments.
///
/// # Panics
///
/// If bytes are wrong, an event has no job, a received message differs from the sent one, or an object
/// cannot be stopped and destroyed at the end.
pub fn doca_work_queues(input: &[u8]) {
    let input = Input::new(input);
    let card = usize::from(input.byte()) % CARDS.len();
    doca_emu::use_config(Some(CARDS[card])).expect("the configurations above are valid");
    let memory = |value: fn(usize) -> u8| {
        Box::into_raw((0..LEN).map(value).collect::<Vec<_>>().into_boxed_slice()).cast::<u8>()
    };
    let devs = PCI.map(open);
    let program = WorkQueueProgram {
        input,
        source: memory(copied),
        target: memory(initial),
        devs,
        rep: channel::representor(devs[0]),
        maps: RefCell::default(),
        of: RefCell::default(),
        inventory: inventory(),
        sources: RefCell::default(),
        targets: RefCell::default(),
        contexts: RefCell::default(),
        queues: RefCell::default(),
        jobs: RefCell::default(),
        submitted: RefCell::default(),
        endpoints: RefCell::default(),
        peers: RefCell::default(),
        text: (0..256 + 8192).map(copied).collect(),
    };
    if !program.input.byte().is_multiple_of(4) {
        program.prepare();
    }
    while !program.input.is_over() {
        program.step();
    }
    program.tear_down();
    for at in 0..LEN {
        // SAFETY: both memories have `LEN` bytes and are not freed yet, and no device uses them any more.
        let (from, to) = unsafe { (*program.source.add(at), *program.target.add(at)) };
        assert_eq!(from, copied(at), "the source was written");
        assert!(to == copied(at) || to == initial(at), "byte {at} is {to}");
    }
    for memory in [program.source, program.target] {
        // SAFETY: the pointer was made from a box of this length above, no device uses the memory any more,
        // and the program is not used after this loop.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(memory, LEN)) });
    }
    doca_emu::use_config(None).expect("arguments that are always valid");
}

/// Opens the device with this PCI address.
fn open(pci: &std::ffi::CStr) -> *mut now::doca_dev {
    let (mut list, mut count, mut dev) = (ptr::null_mut(), 0, ptr::null_mut::<now::doca_dev>());
    assert_eq!(call!(doca_devinfo_list_create(&mut list, &mut count)), OK);
    for place in 0..count as usize {
        let mut text = [0 as std::ffi::c_char; 13];
        // SAFETY: the list has `count` entries, and lives until it is destroyed below.
        let info = unsafe { *list.add(place) };
        assert_eq!(call!(doca_devinfo_get_pci_addr_str(info, text.as_mut_ptr())), OK);
        // SAFETY: the call has succeeded, so it wrote a string that ends with NUL into the array.
        if dev.is_null() && unsafe { std::ffi::CStr::from_ptr(text.as_ptr()) } == pci {
            assert_eq!(call!(doca_dev_open(info, &mut dev)), OK);
        }
    }
    assert_eq!(call!(doca_devinfo_list_destroy(list)), OK);
    assert!(!dev.is_null());
    dev
}

/// Creates and starts an inventory of buffers.
fn inventory() -> *mut now::doca_buf_inventory {
    let mut inventory = ptr::null_mut();
    assert_eq!(call!(doca_buf_inventory_create(ptr::null(), 12, 1, &mut inventory)), OK);
    assert_eq!(call!(doca_buf_inventory_start(inventory)), OK);
    inventory
}

impl WorkQueueProgram {
    /// Creates the objects that copies and messages need, if the input's bytes say so.
    fn prepare(&self) {
        for _ in 0..2 {
            self.make_map();
            self.make_queue();
            self.make_context(self.input.handle(&self.queues));
        }
        for _ in 0..4 {
            self.make_buf();
            self.create_endpoint();
        }
    }

    fn step(&self) {
        match self.input.byte() % 16 {
            0 => self.make_map(),
            1 => self.map_step(),
            2 => self.make_buf(),
            3 => self.release_buf(),
            4 => self.context_step(),
            5 => self.queue_step(),
            6..9 => self.submit(),
            9 | 10 => _ = self.retrieve(self.input.handle(&self.queues)),
            11 | 12 => self.endpoint_step(),
            _ => self.message_step(),
        }
    }

    fn dev(&self) -> *mut now::doca_dev {
        let which = self.input.byte();
        if which == 255 { ptr::null_mut() } else { self.devs[usize::from(which) % 2] }
    }

    /// Creates a map, which is usually valid.
    fn make_map(&self) {
        let mut map = ptr::null_mut();
        // Usually alternates between source and target.
        let is_target = (usize::from(self.input.byte().is_multiple_of(8)) + self.of.borrow().len()) % 2 == 1;
        let memory = if is_target { self.target } else { self.source }.cast();
        let first = cfg!(feature = "generation-1-5");
        assert_eq!(call!(doca_mmap_create(ptr::null(), &mut map)), OK);
        self.maps.borrow_mut().push(map);
        self.of.borrow_mut().push((map, is_target));
        if first && !self.input.byte().is_multiple_of(8) {
            call!(doca_mmap_start(map));
        }
        call!(doca_mmap_dev_add(map, self.devs[0]));
        if first {
            call!(doca_mmap_populate(map, memory, LEN, 4096, None, ptr::null_mut()));
        } else {
            call!(doca_mmap_set_memrange(map, memory, LEN));
            call!(doca_mmap_set_permissions(map, u32::from(is_target)));
            if !self.input.byte().is_multiple_of(8) {
                call!(doca_mmap_start(map));
            }
        }
    }

    fn map_step(&self) {
        let map = self.input.handle(&self.maps);
        match self.input.byte() % 5 {
            0 => {
                if call!(doca_mmap_destroy(map)) == OK {
                    self.maps.borrow_mut().retain(|other| *other != map);
                    self.of.borrow_mut().retain(|(other, _)| *other != map);
                }
            }
            1 => {
                call!(doca_mmap_start(map));
            }
            2 => {
                call!(doca_mmap_dev_add(map, self.dev()));
            }
            3 => {
                call!(doca_mmap_set_max_num_chunks(map, self.input.number() as u32));
            }
            _ => {
                let (mut desc, mut len) = (ptr::null(), 0);
                call!(doca_mmap_export_dpu(map, self.dev(), &mut desc, &mut len));
            }
        }
    }

    fn make_buf(&self) {
        let map = self.input.handle(&self.maps);
        let is_target = self.of.borrow().iter().any(|(other, is_target)| *other == map && *is_target);
        let memory = if is_target { self.target } else { self.source };
        let (start, len) = (self.input.below(LEN + 10), self.input.below(1000));
        let (mut buf, at) = (ptr::null_mut(), memory.wrapping_add(start).cast());
        if call!(doca_buf_inventory_buf_by_args(self.inventory, map, at, len, at, 0, &mut buf)) == OK {
            assert!(start + len <= LEN, "a buffer outside of its map was accepted");
            let bufs = if is_target { &self.targets } else { &self.sources };
            bufs.borrow_mut().push(Buf { buf, start, len });
        }
    }

    fn release_buf(&self) {
        for bufs in [&self.sources, &self.targets] {
            if let Some(buf) = self.input.pick(bufs) {
                assert_eq!(call!(doca_buf_refcount_rm(buf.buf, ptr::null_mut())), OK);
                bufs.borrow_mut().retain(|other| other.buf != buf.buf);
            }
        }
    }

    fn context_step(&self) {
        let dma = self.input.handle(&self.contexts);
        let (ctx, queue) = (call!(doca_dma_as_ctx(dma)), self.input.handle(&self.queues));
        match self.input.byte() % 10 {
            0..2 => self.make_context(queue),
            2 => {
                if call!(doca_dma_destroy(dma)) == OK {
                    self.contexts.borrow_mut().retain(|other| *other != dma);
                }
            }
            3 => _ = call!(doca_ctx_start(ctx)),
            4 => _ = call!(doca_ctx_stop(ctx)),
            5 => _ = call!(doca_ctx_dev_add(ctx, self.dev())),
            6 => _ = call!(doca_ctx_dev_rm(ctx, self.dev())),
            7 => _ = call!(doca_ctx_workq_rm(ctx, queue)),
            _ => _ = call!(doca_ctx_workq_add(ctx, queue)),
        }
    }

    /// Creates a context, which is usually added to a work queue.
    fn make_context(&self, queue: *mut c::doca_workq) {
        let mut made = ptr::null_mut();
        assert_eq!(call!(doca_dma_create(&mut made)), OK);
        self.contexts.borrow_mut().push(made);
        let ctx = call!(doca_dma_as_ctx(made));
        call!(doca_ctx_dev_add(ctx, self.devs[0]));
        call!(doca_ctx_start(ctx));
        call!(doca_ctx_workq_add(ctx, queue));
    }

    fn make_queue(&self) {
        let mut made = ptr::null_mut();
        if call!(doca_workq_create(u32::from(self.input.byte() % 6), &mut made)) == OK {
            self.queues.borrow_mut().push(made);
        }
    }

    fn queue_step(&self) {
        let queue = self.input.handle(&self.queues);
        match self.input.byte() % 6 {
            0..2 => self.make_queue(),
            2 => {
                if call!(doca_workq_destroy(queue)) == OK {
                    self.queues.borrow_mut().retain(|other| *other != queue);
                    assert!(
                        self.jobs.borrow().iter().all(|(_, job)| job.queue != queue),
                        "a work queue with jobs was destroyed"
                    );
                }
            }
            3 => _ = call!(doca_workq_set_event_driven_enable(queue, self.input.byte() % 3)),
            4 => _ = call!(doca_workq_event_handle_arm(queue)),
            _ => {
                let mut handle = -1;
                call!(doca_workq_get_event_handle(queue, &mut handle));
                call!(doca_workq_event_handle_clear(queue, handle));
            }
        }
    }

    /// Submits a copy that keeps the offset modulo 256.
    fn submit(&self) {
        let ctx = call!(doca_dma_as_ctx(self.input.handle(&self.contexts)));
        let queue = self.input.handle(&self.queues);
        let (src, dst) = (self.input.pick(&self.sources), self.input.pick(&self.targets));
        let (from, len) = (self.input.below(1000), self.input.below(600));
        let number = self.submitted.replace_with(|number| *number + 1);
        let (mut handles, mut to) = ((ptr::null_mut(), ptr::null_mut()), 0);
        if let (Some(src), Some(dst)) = (src, dst) {
            let from = src.start + from % (src.len + 1);
            to = dst.start + from.wrapping_sub(dst.start) % 256;
            let set = |buf: Buf, memory: *mut u8, at, len| {
                call!(doca_buf_set_data(buf.buf, memory.wrapping_add(at).cast(), len)) == OK
            };
            // Buffers of jobs in flight belong to the device.
            if !set(src, self.source, from, len) || !set(dst, self.target, to, 0) {
                return;
            }
            handles = (src.buf, dst.buf);
        }
        let user_data = now::doca_data { u64_: number };
        let kind = if self.input.byte() == 255 { 0 } else { c::DOCA_DMA_JOB_MEMCPY };
        let base = c::doca_job { type_: kind as i32, flags: 0, ctx, user_data };
        let job = c::doca_dma_job_memcpy { base, dst_buff: handles.1, src_buff: handles.0 };
        if call!(doca_workq_submit(queue, &job.base)) == OK {
            self.jobs.borrow_mut().push((number, Job { queue, to, len }));
        }
    }

    /// Retrieves an event, and checks the copy.
    fn retrieve(&self, queue: *mut c::doca_workq) -> bool {
        let (user_data, result) = (now::doca_data { u64_: 0 }, now::doca_data { u64_: 0 });
        let mut event = c::doca_event { type_: 0, user_data, result };
        let code = call!(doca_workq_progress_retrieve(queue, &mut event, 0));
        if code != OK && code != now::DOCA_ERROR_IO_FAILED {
            assert!(code == now::DOCA_ERROR_AGAIN || queue.is_null(), "code {code}");
            return false;
        }
        // SAFETY: the union holds the number that was submitted with the job.
        let number = unsafe { event.user_data.u64_ };
        let mut jobs = self.jobs.borrow_mut();
        let place = jobs.iter().position(|(other, job)| *other == number && job.queue == queue);
        let (_, job) = jobs.remove(place.expect("an event without a job"));
        if code == OK {
            for at in job.to..job.to + job.len {
                assert!(at < LEN, "a copy outside of the memory was accepted");
                // SAFETY: the access lies within the target, which is still allocated.
                assert_eq!(unsafe { *self.target.add(at) }, copied(at), "byte {at} was not copied");
            }
        }
        true
    }
}
