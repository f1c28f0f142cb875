//! Copies of 64 bytes per second of CPU time on one core, through the C interface. Copies are submitted and
//! progressed one by one, or in batches with one doorbell. Tasks and buffers are reused. The measurements
//! named `+ set_data` set the data of both buffers before each copy, like programs whose copies have
//! different addresses.
//!
//! `cargo bench -p dma-doca-emu --bench c_abi` runs the measurements. With `-- --test`, each measurement runs
//! once, with few copies. Under `valgrind --tool=callgrind`, divide the counted instructions by the number of
//! copies that the benchmark prints.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::hint::black_box;
use std::ptr;

use doca_emu as _;
use doca_sys::bindings as c;
use rustix::time::{ClockId, clock_gettime};

macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: all handles are of objects that live until the end, and all pointers to results are to
        // variables of the right type.
        let code = unsafe { c::$function($($argument),*) };
        assert_eq!(code, c::DOCA_SUCCESS, stringify!($function));
    }};
}

const LEN: usize = 64;
const TASKS: usize = 64;

struct Bench {
    pe: *mut c::doca_pe,
    tasks: Vec<*mut c::doca_task>,
    bufs: Vec<[*mut c::doca_buf; 2]>,
    /// Counts tasks that ended.
    ended: *mut u64,
}

unsafe extern "C" fn on_done(_: *mut c::doca_dma_task_memcpy, _: c::doca_data, ctx: c::doca_data) {
    // SAFETY: `new` set the context's user data to a pointer.
    let ended = unsafe { ctx.ptr }.cast::<u64>();
    // SAFETY: the pointer is the address of the counter of a `Bench`, which lives until the end and which
    // nothing else writes.
    unsafe { *ended += 1 }
}

unsafe extern "C" fn on_error(_: *mut c::doca_dma_task_memcpy, _: c::doca_data, _: c::doca_data) {
    std::process::abort();
}

impl Bench {
    fn new(config: &str) -> Self {
        doca_emu::use_config(Some(config)).unwrap();
        let (mut list, mut count, mut dev) = (ptr::null_mut(), 0, ptr::null_mut());
        ok!(doca_devinfo_create_list(&mut list, &mut count));
        // SAFETY: the call above succeeded, so the list has at least one device.
        let info = unsafe { *list };
        ok!(doca_dev_open(info, &mut dev));
        let memory = vec![1_u8; 2 * TASKS * LEN].leak().as_mut_ptr();
        let (mut mmap, mut inventory) = (ptr::null_mut(), ptr::null_mut());
        ok!(doca_mmap_create(&mut mmap));
        ok!(doca_mmap_set_memrange(mmap, memory.cast(), 2 * TASKS * LEN));
        ok!(doca_mmap_set_permissions(mmap, c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
        ok!(doca_mmap_add_dev(mmap, dev));
        ok!(doca_mmap_start(mmap));
        ok!(doca_buf_inventory_create(2 * TASKS, &mut inventory));
        ok!(doca_buf_inventory_start(inventory));
        let (mut pe, mut dma) = (ptr::null_mut(), ptr::null_mut());
        ok!(doca_pe_create(&mut pe));
        ok!(doca_dma_create(dev, &mut dma));
        // SAFETY: the DMA context was created above, and lives until the end.
        let ctx = unsafe { c::doca_dma_as_ctx(dma) };
        ok!(doca_pe_connect_ctx(pe, ctx));
        let ended = ptr::from_mut(Box::leak(Box::new(0_u64)));
        ok!(doca_ctx_set_user_data(ctx, c::doca_data { ptr: ended.cast() }));
        ok!(doca_dma_task_memcpy_set_conf(dma, Some(on_done), Some(on_error), TASKS as u32));
        ok!(doca_ctx_start(ctx));
        let mut bench = Self { pe, tasks: Vec::new(), bufs: Vec::new(), ended };
        for i in 0..TASKS {
            let (src, dst) =
                (memory.wrapping_add(i * LEN).cast(), memory.wrapping_add((TASKS + i) * LEN).cast());
            let mut bufs = [ptr::null_mut(); 2];
            ok!(doca_buf_inventory_buf_get_by_args(inventory, mmap, src, LEN, src, LEN, &mut bufs[0]));
            ok!(doca_buf_inventory_buf_get_by_args(inventory, mmap, dst, LEN, dst, 0, &mut bufs[1]));
            let (mut task, none) = (ptr::null_mut(), c::doca_data { u64_: 0 });
            ok!(doca_dma_task_memcpy_alloc_init(dma, bufs[0], bufs[1], none, &mut task));
            // SAFETY: the task was created above, and lives until the end.
            bench.tasks.push(unsafe { c::doca_dma_task_memcpy_as_task(task) });
            bench.bufs.push(bufs);
        }
        bench
    }

    fn ended(&self) -> u64 {
        // SAFETY: the counter lives until the end, and only callbacks write it.
        unsafe { *black_box(self.ended) }
    }

    fn progress(&self) {
        // SAFETY: the progress engine lives until the end, and only this thread uses it.
        unsafe { c::doca_pe_progress(self.pe) };
    }

    /// Makes `times` copies in batches of `batch`, at most `TASKS`.
    fn copy(&self, times: u64, batch: usize, set_data: bool, coalesce: bool) {
        let mut data = ptr::null_mut();
        for _ in 0..times / batch as u64 {
            for i in 0..batch {
                let [src, dst] = self.bufs[i];
                if set_data {
                    ok!(doca_buf_get_head(src, &mut data));
                    ok!(doca_buf_set_data(src, data, LEN));
                    ok!(doca_buf_get_head(dst, &mut data));
                    ok!(doca_buf_set_data(dst, data, 0));
                } else {
                    ok!(doca_buf_reset_data_len(dst));
                }
                let last = i + 1 == batch;
                let report = if coalesce && !last { c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS } else { 0 };
                let flush = if last { c::DOCA_TASK_SUBMIT_FLAG_FLUSH } else { 0 };
                ok!(doca_task_submit_ex(black_box(self.tasks[i]), report | flush));
            }
            let goal = self.ended() / batch as u64 * batch as u64 + batch as u64;
            while self.ended() < goal {
                self.progress();
            }
        }
    }
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--test");
    let count = std::env::var("COPIES").ok().and_then(|text| text.parse().ok());
    let copies: u64 = count.unwrap_or(if quick { 6_400 } else { 6_400_000 });
    let cpu_time = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    };
    println!("| profile | batch | | million/s | ns each |");
    println!("|---|--:|---|--:|--:|");
    for (config, profile) in
        [("", "ideal"), ("profile = \"bluefield3\"\nclock = \"virtual\"", "bluefield3, virtual time")]
    {
        let bench = Bench::new(config);
        for (batch, set_data, coalesce) in
            [(1, false, false), (1, true, false), (32, false, false), (32, true, false), (32, true, true)]
        {
            bench.copy(copies / 10, batch, set_data, coalesce);
            let rounds = (0..if quick { 1 } else { 5 }).map(|_| {
                let begun = cpu_time();
                bench.copy(copies, batch, set_data, coalesce);
                cpu_time() - begun
            });
            let best = rounds.fold(f64::INFINITY, f64::min) / copies as f64;
            let what = match (set_data, coalesce) {
                (false, _) => "",
                (true, false) => "+ set_data",
                (true, true) => "+ set_data, coalesced",
            };
            println!("| {profile} | {batch} | {what} | {:.1} | {:.1} |", 1e-6 / best, best * 1e9);
        }
    }
}
