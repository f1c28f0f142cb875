//! [`Environment`]: SPDK's environment, set up once and shared by every engine of the process.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use dma_core::{Error, ErrorKind, Result};
use dma_process::{ForkLock, ForkMark, lock};
use spdk_sys::{EnvOpts, Library};

use crate::channels::Channels;
use crate::error::{self, error};
use crate::options::Cores;
use crate::{EnvSetup, HugePages, IoatOptions, PciAddress, device, ffi, log};

/// SPDK's environment, and the channels that this process has attached.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) spdk: Library,
    /// The directory of `IoatOptions::lib_dir`.
    lib_dir: Option<PathBuf>,
    /// True if this crate loaded the library. False if the program passed it by `IoatOptions::with_library`.
    loaded: bool,
    /// Lock order: `phase` is locked before `pool`.
    phase: Mutex<SetUpPhase>,
    pool: Mutex<Channels>,
}

#[derive(Debug)]
enum SetUpPhase {
    Down,
    Up(Settings),
    /// The set-up has failed. This state is final, because SPDK's environment cannot be set up twice.
    Failed(Error),
}

/// The settings of the environment.
#[derive(Clone, Debug)]
struct Settings {
    setup: EnvSetup,
    cores: BTreeSet<u32>,
    /// Memory in MiB; `None` to reserve it as needed.
    mem: Option<u32>,
    huge: bool,
    allow: Option<BTreeSet<PciAddress>>,
}

static ENVIRONMENTS: ForkLock<Vec<Arc<Environment>>> = ForkLock::new(Vec::new);

/// The process whose environment is set up.
static SET_UP: OnceLock<ForkMark> = OnceLock::new();

impl Environment {
    /// Returns the environment of the library that `options` name. Loads the library on first use.
    pub(crate) fn of(options: &IoatOptions) -> Result<Arc<Self>> {
        options.check()?;
        let mut environments = ENVIRONMENTS.lock();
        let known = match &options.library {
            Some(library) => environments
                .iter()
                .find(|e| std::ptr::fn_addr_eq(e.spdk.env.spdk_env_init, library.env.spdk_env_init)),
            None => environments.iter().find(|e| e.loaded),
        };
        if let Some(known) = known {
            known.check_lib_dir(options)?;
            return Ok(Arc::clone(known));
        }
        let spdk = match &options.library {
            Some(library) => library.clone(),
            None => load(options.lib_dir.as_deref())?,
        };
        let (release, path) = (spdk.release.to_string(), spdk.path.clone());
        dma_core::deferred_log!(debug, release, path = %path.display(), "SPDK loaded");
        let environment = Arc::new(Self {
            spdk,
            lib_dir: options.lib_dir.clone(),
            loaded: options.library.is_none(),
            phase: Mutex::new(SetUpPhase::Down),
            pool: Mutex::default(),
        });
        environments.push(Arc::clone(&environment));
        Ok(environment)
    }

    fn check_lib_dir(&self, options: &IoatOptions) -> Result<()> {
        let canonical = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let same = |asked: &PathBuf| {
            self.lib_dir.as_ref().is_some_and(|known| canonical(known) == canonical(asked))
                || self.spdk.path.parent().is_some_and(|known| canonical(known) == canonical(asked))
        };
        match &options.lib_dir {
            Some(asked) if self.loaded && !same(asked) => {
                Err(conflict("lib", &asked.display().to_string(), &self.spdk.path.display().to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Sets up the environment with `options`. If it is set up already, checks that it is compatible with
    /// `options`. Returns access to its channels.
    pub(crate) fn up(&self, options: &IoatOptions) -> Result<MutexGuard<'_, Channels>> {
        if SET_UP.get().is_some_and(|process| process.is_child()) {
            return Err(of_parent());
        }
        let mut phase = lock(&self.phase);
        match &*phase {
            SetUpPhase::Up(settings) => settings.check(options)?,
            SetUpPhase::Failed(why) => {
                return Err(error::repeat(why).with_hint(format!(
                    "{}; then start the process again, because SPDK cannot be set up twice",
                    why.hint()
                )));
            }
            SetUpPhase::Down => match self.set_up(options) {
                Ok(settings) => {
                    let known = settings.clone();
                    dma_core::deferred_log!(debug, settings = ?known, "SPDK's environment is set up");
                    _ = SET_UP.set(ForkMark::new());
                    *phase = SetUpPhase::Up(settings);
                }
                Err((error, final_)) => {
                    if final_ {
                        *phase = SetUpPhase::Failed(error::repeat(&error));
                    }
                    return Err(error);
                }
            },
        }
        Ok(self.pool())
    }

    /// Returns the channels of an environment that is set up.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Channels> {
        lock(&self.pool)
    }

    /// Returns true if the environment's memory comes from huge pages, or if that is unknown.
    pub(crate) fn is_huge(&self) -> bool {
        !matches!(&*lock(&self.phase), SetUpPhase::Up(settings) if !settings.huge)
    }

    /// Returns the number of bytes that the environment has reserved, or `None` if it grows as needed.
    pub(crate) fn memory(&self) -> Option<usize> {
        match &*lock(&self.phase) {
            SetUpPhase::Up(settings) if !settings.huge => settings.mem.map(|mib| (mib as usize) << 20),
            _ => None,
        }
    }

    /// Sets up the environment. The flag next to an error is true if the error is final.
    fn set_up(&self, options: &IoatOptions) -> Result<Settings, (Error, bool)> {
        let known = ffi::core_count(&self.spdk) > 0;
        if options.env == EnvSetup::External {
            return self.adopt(options, known).map_err(|e| (e, false));
        }
        if known {
            return Err((exists(), false));
        }
        let settings = Settings::new(options, self.system_functions()).map_err(|e| (e, false))?;
        let mut opts = EnvOpts::new(&self.spdk);
        opts.set_name(c"dma".to_owned());
        // The text contains no NUL.
        opts.set_core_mask(CString::new(format!("[{}]", Cores(&settings.cores))).unwrap_or_default());
        if let Some(mem) = settings.mem {
            opts.set_mem_size(i32::try_from(mem).unwrap_or(i32::MAX));
        }
        if !settings.huge {
            opts.set_no_huge(self.spdk.release);
        }
        if let Some(allow) = &settings.allow {
            opts.set_allowed(allow.iter().map(|address| ffi::native_address(*address)).collect());
        }
        log::forward(&self.spdk);
        // DPDK pins the thread that sets it up to its first core. The caller's thread must keep its affinity.
        let affinity = rustix::thread::sched_getaffinity(None);
        let code = ffi::env_init(&self.spdk, &opts);
        if let Ok(affinity) = affinity {
            let _ = rustix::thread::sched_setaffinity(None, &affinity);
        }
        if code < 0 { Err((settings.refused(code, &self.spdk), true)) } else { Ok(settings) }
    }

    /// Returns the I/OAT functions of the machine. `None` for the stand-in's calls and for calls that the
    /// program supplies, because they have devices of their own.
    fn system_functions(&self) -> Option<BTreeSet<PciAddress>> {
        let is_system = self.loaded && self.spdk.stand_in.is_none();
        is_system.then(|| device::functions().iter().map(|function| function.address).collect())
    }

    /// Takes over an environment that the program has set up.
    fn adopt(&self, options: &IoatOptions, known: bool) -> Result<Settings> {
        if !known && self.spdk.env.spdk_env_get_core_count.is_some() {
            return Err(error(ErrorKind::NotFound, "the program has not set up SPDK's environment")
                .with_operation("open engine")
                .with_hint("call spdk_env_init first, or leave out the option `env=external`"));
        }
        let given = [
            ("cores", options.cores.is_some()),
            ("mem", options.mem.is_some()),
            ("huge", options.huge != HugePages::Auto),
            ("allow", options.allow.is_some()),
        ];
        if let Some((key, _)) = given.iter().find(|(_, given)| *given) {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("option `{key}` with an environment that the program set up"),
            )
            .with_operation("open engine")
            .with_hint("pass it to spdk_env_init instead"));
        }
        Ok(Settings { setup: EnvSetup::External, cores: BTreeSet::new(), mem: None, huge: true, allow: None })
    }
}

fn load(dir: Option<&Path>) -> Result<Library> {
    #[cfg(feature = "linked")]
    if dir.is_none() {
        return Library::linked().map_err(error::load);
    }
    let loaded = match dir {
        Some(dir) => Library::open_in(dir),
        None => Library::open(),
    };
    loaded.map_err(error::load)
}

impl Settings {
    /// Resolves the options on this machine. DPDK would take every device for which it has a driver, such as
    /// the network card. So only `functions` are allowed, unless the options name others.
    fn new(options: &IoatOptions, functions: Option<BTreeSet<PciAddress>>) -> Result<Self> {
        let allow = match (&options.allow, functions) {
            (None, Some(functions)) if functions.is_empty() => return Err(device::no_device_error(&[])),
            (None, functions) => functions,
            (allow, _) => allow.clone(),
        };
        let huge = match options.huge {
            HugePages::On if !dma_vendor::host::has_huge_pages() => return Err(no_huge_pages()),
            HugePages::On => true,
            HugePages::Off => false,
            HugePages::Auto if dma_vendor::host::has_huge_pages() => true,
            // Without a device, ordinary pages suffice.
            HugePages::Auto if device::functions().is_empty() => false,
            HugePages::Auto => return Err(no_huge_pages()),
        };
        let usable = usable_cores();
        let cores = match &options.cores {
            Some(cores) => cores.clone(),
            None => usable.iter().take(1).copied().collect(),
        };
        if let Some(core) = cores.iter().find(|core| !usable.is_empty() && !usable.contains(core)) {
            return Err(error(ErrorKind::InvalidArgument, format!("this process may not use core {core}"))
                .with_operation("open engine")
                .with_hint(format!("use cores of {}", Cores(&usable))));
        }
        let mem = options.mem.or_else(|| (!huge).then_some(IoatOptions::MEM_WITHOUT_HUGE));
        Ok(Self { setup: EnvSetup::Own, cores, mem, huge, allow })
    }

    /// Returns an error if `options` contradict these settings.
    fn check(&self, options: &IoatOptions) -> Result<()> {
        let huge = |huge| if huge { "on" } else { "off" };
        if options.env == EnvSetup::External && self.setup == EnvSetup::Own {
            return Err(conflict("env", "external", "own"));
        }
        if let Some(cores) = &options.cores
            && *cores != self.cores
        {
            return Err(conflict("cores", &Cores(cores).to_string(), &Cores(&self.cores).to_string()));
        }
        if let (Some(asked), Some(has)) = (options.mem, self.mem)
            && asked > has
        {
            return Err(conflict("mem", &asked.to_string(), &has.to_string()));
        }
        let wrong = match options.huge {
            HugePages::Auto => None,
            HugePages::On => (!self.huge).then_some(true),
            HugePages::Off => self.huge.then_some(false),
        };
        if let Some(asked) = wrong {
            return Err(conflict("huge", huge(asked), huge(self.huge)));
        }
        if let Some(allow) = &options.allow
            && self.allow.as_ref() != Some(allow)
        {
            let text = |allow: &BTreeSet<PciAddress>| {
                allow.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
            };
            let has = self.allow.as_ref().map_or_else(|| "all".to_owned(), text);
            return Err(conflict("allow", &text(allow), &has));
        }
        Ok(())
    }

    /// Returns the error of a set-up of the environment that returned `code`.
    fn refused(&self, code: i32, spdk: &Library) -> Error {
        if code == -error::EALREADY {
            return exists().with_native(error::native(code));
        }
        if let Some(refused) = dpdk_refused(spdk) {
            return error(ErrorKind::VersionMismatch, refused)
                .with_native(error::native(code))
                .with_operation("open engine")
                .with_hint(OTHER_DPDK);
        }
        let dpdk = spdk.dpdk.as_ref().map_or_else(String::new, |dpdk| format!(" with {dpdk}"));
        let what = format!("the environment of SPDK {}{dpdk} cannot be set up", spdk.release);
        let failed = error::failed(what, code).with_operation("open engine");
        let mut hints = Vec::new();
        if code == -error::EINVAL && spdk.dpdk.is_some() {
            hints.push("SPDK may not accept this DPDK".to_owned());
        }
        if self.huge {
            hints
                .push(format!("reserve huge pages that are free ({HUGE_HOW}), or use the option `huge=off`"));
        } else {
            hints.push(format!(
                "without huge pages, {} MiB are allocated at once: see the option `mem`",
                self.mem.unwrap_or_default()
            ));
        }
        if !rustix::process::geteuid().is_root() {
            hints.push("this process does not run as root: run it as root, or give this user the huge pages' directory, /dev/vfio, and a higher `ulimit -l`".into());
        }
        hints.push(format!(
            "the environment's cores are {}; see SPDK's messages in the log or on stderr",
            Cores(&self.cores)
        ));
        failed.with_hint(hints.join("; "))
    }
}

/// The remedy for an SPDK that refuses its DPDK.
pub(crate) const OTHER_DPDK: &str = "use the DPDK that this SPDK was built with (SPDK's own is in spdk/dpdk/build/lib; name it in LD_LIBRARY_PATH), or an SPDK that accepts this DPDK";

/// Returns a sentence with both versions if SPDK is known to refuse its DPDK.
pub(crate) fn dpdk_refused(spdk: &Library) -> Option<String> {
    let dpdk = spdk.dpdk.as_ref()?;
    let refused = spdk.release.accepts(dpdk) == Some(false);
    refused.then(|| format!("SPDK {} as released does not accept {dpdk}", spdk.release))
}

const HUGE_HOW: &str = "as root, `echo 512 > /proc/sys/vm/nr_hugepages`";

fn no_huge_pages() -> Error {
    error(ErrorKind::OutOfMemory, "the system has no huge pages reserved")
        .with_operation("open engine")
        .with_hint(format!(
            "reserve some, {HUGE_HOW}, or run SPDK's `scripts/setup.sh`; with an IOMMU, the option `huge=off` works without them"
        ))
}

fn exists() -> Error {
    error(
        ErrorKind::InUse,
        "other code of this process has already set up SPDK's environment, and a process can have only one",
    )
    .with_operation("open engine")
    .with_hint("use it with the option `env=external`")
}

fn of_parent() -> Error {
    error(ErrorKind::Unsupported, "SPDK's environment belongs to the parent of this forked process")
        .with_operation("open engine")
        .with_hint("use I/OAT in a process that was started by exec, or open it only after the fork")
}

fn conflict(key: &str, asked: &str, has: &str) -> Error {
    error(
        ErrorKind::InUse,
        format!("option `{key}={asked}`, but SPDK's environment of this process was set up with `{key}={has}`, and a process has only one"),
    )
    .with_operation("open engine")
    .with_hint(format!("leave `{key}` out, or give it to the first engine of the process"))
}

/// Returns the CPUs that this process may use; CPU 0 if that is unknown.
fn usable_cores() -> BTreeSet<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return BTreeSet::from([0]) };
    (0..IoatOptions::CORES_MAX).filter(|core| set.is_set(*core as usize)).collect()
}
