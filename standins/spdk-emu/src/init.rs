//! Setting up the environment, once per process.
#![expect(unsafe_code, reason = "the names are C's")]

use std::ffi::{c_char, c_int};
use std::mem::offset_of;
use std::sync::Mutex;

use crate::c_abi::{Errno, Ptr, Text, answer, c, c_calls};
use crate::config::{Clock, Config, Iova, Machine};
use crate::cpuset;
use crate::env::{cores, map, memory, time};
use crate::{lock, pci, pci_addr};
use c::spdk_env_opts;

/// The default of `core_mask`.
const CORE_MASK: &std::ffi::CStr = c"0x1";
const NAME: &std::ffi::CStr = c"spdk";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitState {
    /// The environment was not set up yet.
    New,
    Ready,
    /// The set-up has failed, which is final in this process, or the environment was shut down.
    Over,
}

static STATE: Mutex<InitState> = Mutex::new(InitState::New);

fn complain(problem: &str) {
    eprintln!("spdk-emu: {problem}");
}

/// An error code of the set-up, and the line for stderr.
struct Refusal {
    errno: Errno,
    problem: String,
}

fn refuse<T>(errno: Errno, problem: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { errno, problem: problem.into() })
}

c_calls! {
    /// Sets the struct to the defaults, up to the size that the program states.
    fn spdk_env_opts_init(opts: Ptr<spdk_env_opts>) {
        let Some(&spdk_env_opts { opts_size, .. }) = opts.get() else { return };
        let whole = opts_size >= size_of::<spdk_env_opts>();
        let before = opts.get().filter(|_| !whole);
        let none = || std::ptr::null_mut();
        let new = spdk_env_opts {
            name: NAME.as_ptr(),
            core_mask: CORE_MASK.as_ptr(),
            lcore_map: std::ptr::null(),
            shm_id: -1,
            mem_channel: -1,
            main_core: -1,
            mem_size: -1,
            no_pci: false,
            hugepage_single_segments: false,
            unlink_hugepage: false,
            no_huge: false,
            reserved: 0,
            num_pci_addr: 0,
            hugedir: std::ptr::null(),
            pci_blocked: none(),
            pci_allowed: none(),
            iova_mode: std::ptr::null(),
            base_virtaddr: 0x2000_0000_0000,
            env_context: std::ptr::null_mut(),
            vf_token: std::ptr::null(),
            opts_size,
            enforce_numa: before.is_some_and(|before| before.enforce_numa),
            reserved2: before.map_or([0; 7], |before| before.reserved2),
        };
        opts.put(new);
    }

    fn spdk_env_init(opts: Ptr<spdk_env_opts>) -> c_int {
        let mut state = lock(&STATE);
        let outcome = match (*state, opts.get()) {
            (InitState::New, None) => refuse(-libc::EINVAL, "spdk_env_init needs options the first time"),
            (InitState::New, Some(opts)) => {
                // SAFETY: C filled the options with `spdk_env_opts_init`, and the pointers that it stored in
                // them are valid or null.
                let outcome = unsafe { init(opts) };
                // If the options were invalid, nothing was set up, so the program may try again.
                *state = match &outcome {
                    Ok(()) => InitState::Ready,
                    Err(Refusal { errno, .. }) if *errno == -libc::EINVAL => InitState::New,
                    Err(_) => InitState::Over,
                };
                outcome
            }
            (_, Some(_)) => refuse(
                -libc::EINVAL,
                "the environment was set up in this process before; pass NULL to set it up again with the same options",
            ),
            (_, None) => {
                *state = InitState::Ready;
                Ok(())
            }
        };
        pci::set_ready(*state == InitState::Ready);
        answer(outcome.map_err(|Refusal { errno, problem }| {
            complain(&problem);
            errno
        }))
    }
}

/// The settings that the program requests by its options.
struct Requested<'a> {
    cores: Vec<u32>,
    main_core: u32,
    no_huge: bool,
    memory: Option<u64>,
    iova: Option<&'a str>,
}

impl<'a> Requested<'a> {
    /// # Safety
    ///
    /// The options' pointers are valid, as SPDK's header requires.
    unsafe fn of(opts: &spdk_env_opts) -> Result<Self, Refusal> {
        let text = |ptr: *const c_char| {
            // SAFETY: each of the options' strings is NULL or ends in NUL, as the caller promises.
            let text = unsafe { Text::new(ptr) };
            text.get().map(|text| text.to_str().unwrap_or("?"))
        };
        let context = text(opts.env_context.cast_const().cast()).unwrap_or("");
        let no_huge = opts.no_huge || context.contains("--no-huge");
        let cores = match (text(opts.core_mask), text(opts.lcore_map)) {
            (Some(_), Some(_)) => {
                return refuse(-libc::EINVAL, "both core_mask and lcore_map are set; set one");
            }
            (None, None) => return refuse(-libc::EINVAL, "neither core_mask nor lcore_map is set; set one"),
            (Some(mask), None) => (mask, cpuset::parse(mask)),
            (None, Some(map)) => (map, parse_lcore_map(map)),
        };
        let cores = match cores {
            (_, Some(cores)) if !cores.is_empty() => cores,
            (requested, _) => {
                return refuse(-libc::EINVAL, format!("`{requested}` names no cores; write 0x3 or [0,1]"));
            }
        };
        let iova = text(opts.iova_mode);
        if no_huge {
            if opts.mem_size < 0 {
                return refuse(-libc::EINVAL, "no_huge needs mem_size, in MiB");
            }
            if opts.hugepage_single_segments || opts.unlink_hugepage || !opts.hugedir.is_null() {
                return refuse(-libc::EINVAL, "no_huge excludes options of huge pages; leave one out");
            }
            if iova == Some("pa") {
                return refuse(-libc::EINVAL, "no_huge excludes iova_mode `pa`; leave it out or set `va`");
            }
        }
        if let Some(unknown) = iova.filter(|mode| !["pa", "va"].contains(mode)) {
            return refuse(-libc::EINVAL, format!("iova_mode is `{unknown}`; set `pa` or `va`"));
        }
        // A program that zeroed the struct passes 0 without meaning core 0.
        let main_core = u32::try_from(opts.main_core).ok().filter(|core| *core > 0).unwrap_or(cores[0]);
        let memory = u64::try_from(opts.mem_size).ok().filter(|mib| *mib > 0).map(|mib| mib << 20);
        Ok(Self { cores, main_core, no_huge, memory, iova })
    }
}

/// Parses `0,2-4`, or DPDK's format `0@3,1@(4-5)`, of which only the numbers before `@` are used.
fn parse_lcore_map(map: &str) -> Option<Vec<u32>> {
    let mut kept = String::new();
    let (mut depth, mut skipping) = (0, false);
    for c in map.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '@' => skipping = true,
            ',' if depth == 0 => {
                skipping = false;
                kept.push(c);
            }
            _ if !skipping => kept.push(c),
            _ => {}
        }
    }
    cpuset::parse(&format!("[{kept}]"))
}

/// # Safety
///
/// The options' pointers are valid, as SPDK's header requires.
unsafe fn init(opts: &spdk_env_opts) -> Result<(), Refusal> {
    if opts.opts_size < offset_of!(spdk_env_opts, opts_size) + size_of::<usize>() {
        complain(&format!("opts_size is {}, too small; set it to the size of the struct", opts.opts_size));
    }
    // SAFETY: the caller guarantees that each pointer in the options is null, or valid as SPDK's header
    // requires.
    let requested = unsafe { Requested::of(opts) }?;
    let config = match Config::in_use() {
        Ok(config) => config,
        Err(error) => return refuse(-libc::EINVAL, error.to_string()),
    };
    let Machine { hugepages, memory: limit, iova, cores: there_are, .. } = config.machine;
    if let Some(core) = requested.cores.iter().find(|core| **core >= there_are) {
        return refuse(
            -libc::EINVAL,
            format!("core {core} does not exist; the machine has {there_are} (see `cores`)"),
        );
    }
    if !requested.cores.contains(&requested.main_core) {
        return refuse(-libc::EINVAL, format!("main_core {} is not among the cores", requested.main_core));
    }
    if !hugepages && !requested.no_huge {
        return refuse(
            -libc::EACCES,
            "no huge pages are reserved; set vm.nr_hugepages, or no_huge and mem_size",
        );
    }
    if requested.memory.is_some_and(|requested| requested > limit) {
        return refuse(-libc::ENOMEM, format!("mem_size is more than the available {} MiB", limit >> 20));
    }
    let virtual_addresses = match requested.iova {
        Some(mode) => mode == "va",
        None => requested.no_huge || iova == Iova::Va,
    };
    map::use_virtual(virtual_addresses);
    memory::set_limit(requested.memory.unwrap_or(limit));
    time::use_virtual(config.sockets.iter().any(|socket| socket.clock == Some(Clock::Virtual)));
    let addresses = |ptr: *mut c::spdk_pci_addr| {
        // SAFETY: the caller promises that the options' pointers to addresses are valid or null.
        let addresses = unsafe { Ptr::new(ptr) };
        // SAFETY: the options state the number of addresses, and the caller promises that it is right.
        unsafe { addresses.slice(opts.num_pci_addr) }
    };
    let (blocked, allowed) = (addresses(opts.pci_blocked), addresses(opts.pci_allowed));
    let lists = |list: &[_], addr: &_| list.iter().any(|listed| pci_addr::compare(listed, addr).is_eq());
    pci::start(config, |addr| {
        let passes = match opts.pci_blocked.is_null() {
            true => allowed.is_empty() || lists(allowed, addr),
            false => !lists(blocked, addr),
        };
        passes && !opts.no_pci
    });
    cores::start(requested.cores, requested.main_core).map_err(|errno| Refusal {
        errno,
        problem: "the threads of the cores could not be started".to_owned(),
    })
}

c_calls! {
    fn spdk_env_fini() {
        let mut state = lock(&STATE);
        if *state == InitState::Ready {
            *state = InitState::Over;
            pci::set_ready(false);
        }
    }

    /// Always returns true, because each process has its own environment.
    fn spdk_process_is_primary() -> bool { true }
}

const _: () = assert!(offset_of!(spdk_env_opts, opts_size) == 112);
