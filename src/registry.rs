//! The registry of backends.
#![expect(unsafe_code, reason = "reads a list that is never freed, through a pointer")]

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Error, ErrorKind, Result, closest_name};

use crate::auto::Auto;
use crate::wrappers::{Wrapped, is_wrapper};

/// The backend `auto`.
static AUTO: Auto = Auto { backends, backend, open_name };

/// Makes [`BUILT_IN`] and [`LEFT_OUT`] from a list of backends. An optional backend has its feature in
/// brackets.
macro_rules! registry {
    ($($always:path),*; $([$feature:literal] $optional:path),*) => {
        /// The backends that this build has, in the order in which they are listed.
        static BUILT_IN: &[&dyn Backend] = &[
            $(&$always,)*
            $(#[cfg(feature = $feature)] &$optional,)*
        ];

        /// The features of the backends that this build does not have.
        static LEFT_OUT: &[&str] = &[$(#[cfg(not(feature = $feature))] $feature,)*];
    };
}

registry! {
    AUTO,
    dma_cpu::BACKEND,
    dma_sim::BACKEND;
    ["doca"] dma_doca::BACKEND,
    ["ioat"] dma_ioat::BACKEND,
    ["dsa"] dma_dsa::BACKEND,
    ["rdma"] dma_rdma::BACKEND,
    ["cuda"] dma_cuda::BACKEND
}

/// The backends that the program added. Each addition publishes a new list, and earlier lists are never
/// freed. Without a lock, a forked child has all backends, even if a thread of its parent added one at the
/// fork.
static ADDED: AtomicPtr<Vec<&'static dyn Backend>> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the backends that the program added, and the pointer to compare for an addition.
fn added() -> (&'static [&'static dyn Backend], *mut Vec<&'static dyn Backend>) {
    let list = ADDED.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or `register` has published it, which leaks the list and never changes it.
    (unsafe { list.as_ref() }.map_or(&[], Vec::as_slice), list)
}

/// Returns all backends: first the backends of this build, then the backends that the program added.
#[must_use]
pub fn backends() -> Vec<&'static dyn Backend> {
    BUILT_IN.iter().chain(added().0).copied().collect()
}

/// Adds a backend. After this call, [`open`], [`discover`] and [`doctor`](crate::doctor) know its name, in
/// all threads.
///
/// ```
/// # fn add(backend: &'static dyn dma::Backend) -> dma::Result<()> {
/// dma::register(backend)?;
/// let engine = dma::open("mine:first,depth=64")?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `InvalidArgument` if another backend has the name, if the name is not a lowercase letter followed by
/// lowercase letters, digits, `-` and `_`, or if an option's key cannot be written in an engine name or is
/// listed twice.
pub fn register(backend: &'static dyn Backend) -> Result<()> {
    let name = backend.name();
    let invalid = |message: String| {
        Error::new(ErrorKind::InvalidArgument, message).with_operation(format!("register backend `{name}`"))
    };
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_word) {
        return Err(invalid(format!("`{name}` is not a valid name"))
            .with_hint("begin with a lowercase letter, followed by lowercase letters, digits, - and _"));
    }
    let format = backend.name_format();
    let mut keys = format.options.iter().map(|info| info.key);
    keys.try_fold(EngineName::of(format), |name, key| name.with_option(key, "")).map_err(|e| {
        invalid(e.message().to_owned()).with_hint("correct the keys of the backend's options")
    })?;
    loop {
        let (known, list) = added();
        if BUILT_IN.iter().chain(known).any(|known| known.name() == name) {
            return Err(invalid("another backend has this name".to_owned()).with_hint("choose another name"));
        }
        let longer = Box::into_raw(Box::new([known, &[backend]].concat()));
        if ADDED.compare_exchange(list, longer, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        // Another thread has added a backend.
        // SAFETY: the pointer was made above, and was not published.
        drop(unsafe { Box::from_raw(longer) });
    }
}

/// Names of hardware, each with its backend.
const HARDWARE: &[(&str, &str)] = &[
    ("gpu", "cuda"),
    ("nvidia", "cuda"),
    ("dpu", "doca"),
    ("bluefield", "doca"),
    ("idxd", "dsa"),
    ("infiniband", "rdma"),
    ("roce", "rdma"),
    ("verbs", "rdma"),
    ("memcpy", "cpu"),
    ("simulator", "sim"),
];

/// Returns the backend with this name.
///
/// # Errors
///
/// `InvalidArgument` if no backend has the name, with the closest valid name as a hint.
pub(crate) fn backend(name: &str) -> Result<&'static dyn Backend> {
    let all = backends();
    if let Some(found) = all.iter().find(|backend| backend.name() == name) {
        return Ok(*found);
    }
    let names: Vec<_> = all.iter().map(|backend| backend.name()).collect();
    let known = names.join(", ");
    if name.trim().is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, "the name of the engine is missing")
            .with_hint(format!("there are: {known}")));
    }
    let error = Error::new(ErrorKind::InvalidArgument, format!("unknown engine `{name}`"));
    if is_wrapper(name) {
        return Err(error.with_hint(format!("name an engine after the wrapper, such as {name}+cpu")));
    }
    if let Some(feature) = LEFT_OUT.iter().find(|feature| **feature == name) {
        return Err(error.with_hint(format!(
            "build this program with the feature `{feature}`, which the crate `dma` has"
        )));
    }
    // Find the word at the beginning, for names such as `CPU`, ` cpu`, `cpu,threads=2` and `doca/03:00.0`.
    let trimmed = name.trim();
    let end = trimmed.find(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
    let word = trimmed[..end.unwrap_or(trimmed.len())].to_ascii_lowercase();
    let colon = if end.is_some() {
        "; write a colon before the device or the options, such as doca:03:00.0 or cpu:threads=2"
    } else {
        ""
    };
    let meant = HARDWARE.iter().find(|(hardware, _)| *hardware == word).map(|(_, backend)| *backend);
    let meant = meant.filter(|backend| names.contains(backend));
    Err(match meant.or_else(|| closest_name(&word, &names)) {
        Some(close) => error.with_hint(format!("did you mean `{close}`? There are: {known}{colon}")),
        None => error.with_hint(format!("there are: {known}")),
    })
}

/// Opens an engine by name.
///
/// | name | engine | options |
/// |---|---|---|
/// | `auto` | chooses between the CPU and the devices found, for each copy | as `auto:device=doca:03:00.0` |
/// | `cpu` | the CPU | [`CpuOptions`](crate::cpu::CpuOptions::INFO), as `cpu:threads=2` |
/// | `sim` | a simulated device | [`SimOptions`](crate::sim::SimOptions), as `sim:seed=7,faults=fail@5` |
/// | `doca` | the first BlueField with DMA, or the named device | `DocaOptions`, as `doca:03:00.0,depth=64` |
/// | `ioat` | I/OAT channels, one for each queue, or the named channel | `IoatOptions`, as `ioat:mem=512` |
/// | `dsa` | the first usable DSA work queue, or the named one | `DsaOptions`, as `dsa:wq0.0,depth=64` |
/// | `rdma` | the first active RDMA device, or the named device | `RdmaOptions`, as `rdma:mlx5_0,port=1` |
/// | `cuda` | the first CUDA device, or the named device | `CudaOptions`, as `cuda:0,depth=64` |
///
/// [`backends`] lists all backends, with their options. [`register`] adds a backend. [`EngineName`] describes
/// the notation.
///
/// With a wrapper and `+` before a name, this opens the named engine inside the wrapper:
///
/// | wrapper | engine | options |
/// |---|---|---|
/// | `verify` | [`VerifyEngine`]: checks the bytes of copies | [`VerifyOptions::INFO`] |
/// | `meter` | [`MeterEngine`]: counts, and histograms of latencies and sizes | [`MeterOptions::INFO`] |
/// | `record` | [`RecordEngine`]: writes a trace of all operations to a file | [`RecordOptions::INFO`] |
///
/// The options of the wrapper and of the engine are one list: `verify+cpu:threads=2,sample=100`. An option
/// belongs to the outermost wrapper that has it, and otherwise to the engine. Wrappers can be nested, as in
/// `meter+verify+cpu`, but each wrapper can be used only once.
///
/// [`MeterEngine`]: crate::layers::meter::MeterEngine
/// [`MeterOptions::INFO`]: crate::layers::meter::MeterOptions::INFO
/// [`RecordEngine`]: crate::layers::record::RecordEngine
/// [`RecordOptions::INFO`]: crate::layers::record::RecordOptions::INFO
/// [`VerifyEngine`]: crate::layers::verify::VerifyEngine
/// [`VerifyOptions::INFO`]: crate::layers::verify::VerifyOptions::INFO
///
/// A name is trusted like a command line. The option `lib` of `doca`, `ioat`, `rdma` and `cuda` names a
/// directory whose libraries are loaded, so their code runs in this process. The options `dev` and `sysfs` of
/// `dsa` name directories whose files are opened for writing, and `file` of `record` names a file to write.
/// The option `listen` of `rdma` names an address at which this process listens, and `export` of `doca` names
/// a network that can reach exported memory. Use [`parse_untrusted`] for names from untrusted input.
///
/// # Errors
///
/// `InvalidArgument` or `OutOfRange` for a name, option or value that does not exist, with the valid ones in
/// the hint; `MissingSdk` if the vendor's libraries cannot be used; `NotFound` if the device does not exist;
/// other errors of opening the engine.
pub fn open(name: &str) -> Result<Arc<dyn DmaEngine>> {
    open_name(&name.parse()?)
}

/// Opens the engine of a parsed name, such as a name from [`discover`].
///
/// # Errors
///
/// See [`open`].
pub fn open_name(name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
    let opened = Wrapped::of(name).and_then(|wrapped| match wrapped {
        Some(wrapped) => wrapped.open_around(open_name(&wrapped.inner)?),
        None => backend(name.backend())?.open(name),
    });
    opened.map_err(|e| e.with_operation(format!("open engine `{name}`")))
}

/// Parses an engine name that comes from untrusted input. Unlike [`EngineName`], this refuses options that
/// have effects beyond the engine's device.
///
/// Such a name can still choose the device, the amount of memory and the number of threads.
///
/// ```
/// use dma::ErrorKind;
///
/// # #[cfg(feature = "doca")]
/// let error = dma::parse_untrusted("doca:03:00.0,lib=/tmp/upload").unwrap_err();
/// # #[cfg(feature = "doca")]
/// assert_eq!(error.kind(), ErrorKind::PermissionDenied);
/// let engine = dma::open_name(&dma::parse_untrusted("cpu:threads=1")?)?;
/// # Ok::<(), dma::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`EngineName::from_str`](std::str::FromStr::from_str); `InvalidArgument` for an unknown
/// backend. `PermissionDenied` for options that load code, such as `lib` of `doca` and `ioat`; options that
/// name files to write, such as `dev` and `sysfs` of `dsa`; and options that make this process or its memory
/// reachable over a network, such as `listen` of `rdma` and `export` of `doca`.
pub fn parse_untrusted(name: &str) -> Result<EngineName> {
    let parsed: EngineName = name.parse()?;
    refuse_untrusted(&parsed).map_err(|e| e.with_operation(format!("open engine `{name}`")))?;
    Ok(parsed)
}

/// Refuses a name with an option that needs trust, and a name that contains such a name.
fn refuse_untrusted(name: &EngineName) -> Result<()> {
    if let Some(wrapped) = Wrapped::of(name)? {
        wrapped.refuse_untrusted()?;
        return refuse_untrusted(&wrapped.inner);
    }
    let backend = backend(name.backend())?;
    name.refuse_untrusted(backend.name_format())?;
    if backend.name() != AUTO.name() {
        return Ok(());
    }
    // The recursion ends, because `auto` cannot be a device of `auto`.
    AUTO.devices_of(name)?.iter().try_for_each(refuse_untrusted)
}

/// Lists every backend with its devices. A device that cannot be used has the reason and a remedy in its
/// entry.
///
/// Opens each engine briefly, which may take some milliseconds, and loads the vendors' libraries if they are
/// installed. On a machine with I/OAT, this sets up SPDK's environment for this process, with the default
/// options. A missing SDK or device is not an error: its entry has the reason.
#[must_use]
pub fn discover() -> Vec<Discovered> {
    let own = backends().into_iter().filter(|backend| backend.delegates_to().is_none());
    own.flat_map(Backend::discover).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(name: &str) -> Error {
        let error = open(name).expect_err(name);
        assert!(error.to_string().contains(&format!("open engine `{name}`")), "{error}");
        assert!(!error.hint().is_empty(), "{error}");
        error
    }

    #[test]
    fn every_engine_that_is_discovered_opens_by_its_name() {
        let found = discover();
        assert!(
            found.iter().any(|d| d.name.backend() == "cpu" && d.info.is_ok()),
            "the CPU engine is always available"
        );
        for Discovered { name, info, .. } in found {
            match (open_name(&name), info) {
                (Ok(engine), Ok(info)) => assert_eq!(engine.info().backend, info.backend),
                (Err(e), Err(why)) => {
                    assert_eq!(e.kind(), why.kind());
                    assert!(!e.hint().is_empty(), "the error has a hint: {e}");
                }
                (opened, info) => panic!("{name}: discovered {info:?}, opened {opened:?}"),
            }
        }
    }

    #[test]
    fn bad_names_say_what_would_have_been_right() {
        let says = |name: &str| {
            let error = error(name);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            error.to_string()
        };
        assert!(says("quantum").contains("there are: auto, cpu, sim"));
        for missing in ["", " ", "auto:device=sim|"] {
            let text = says(missing);
            assert!(text.contains("the name of the engine is missing; there are: auto, cpu"), "{text}");
        }
        for other in ["ipc", "tpu", "nvme"] {
            let text = says(other);
            assert!(!text.contains("did you mean") && text.contains("there are: auto, cpu"), "{text}");
        }
        for name in [
            "cpo",
            "CPU",
            "Cpu:threads=2",
            "cpu,threads=2",
            "cpu;threads=2",
            "cpu=2",
            "cpu ",
            " cpu",
            "memcpy",
        ] {
            assert!(says(name).contains("did you mean `cpu`?"), "{}", says(name));
        }
        assert!(says("cpu,threads=2").contains("write a colon before"));
        assert!(!says(" cpu").contains("write a colon before"), "{}", says(" cpu"));
        for (hardware, backend, built) in
            [("gpu", "cuda", cfg!(feature = "cuda")), ("DPU", "doca", cfg!(feature = "doca"))]
        {
            let text = says(hardware);
            assert_eq!(text.contains(&format!("did you mean `{backend}`?")), built, "{text}");
        }
        assert!(says("sim:seed").contains("key=value"));
        assert!(says("auto:x=1").contains("device, prefer"));
        assert!(says("auto:device=sim,prefer=best").contains("measured, device"));
        for nested in ["auto", "auto:device=sim", "cpu", "cpu:threads=2"] {
            assert!(
                says(&format!("auto:device={nested}"))
                    .contains("`auto` and the CPU cannot be devices of `auto`")
            );
        }
        assert!(says("auto:device=").contains("device="));
        assert!(says("auto:device=sim|sim").contains("`sim` is named twice"));
        assert!(says("auto:device=sim|cpu").contains("`auto` and the CPU cannot be devices of `auto`"));
        assert!(says("auto:device=smi").contains("did you mean `sim`?"));
        assert!(says("auto:device=sim:seed=1;color=red").contains("profile"));
        assert!(says("auto:device=sim:seed=1,depth=4").contains("auto:device=sim:seed=1;depth=4"));
        assert!(says("cpu:thread=2").contains("threads"));
        assert!(says("sim:color=red").contains("profile"));
        for (feature, there) in [("doca", cfg!(feature = "doca")), ("ioat", cfg!(feature = "ioat"))] {
            let name = format!("{feature}:03:00.0:depth=4");
            assert!(says(&name).contains("03:00.0,depth=4"));
            let name = format!("{feature}:3:0.0");
            let expected = if there { "DDDD:BB:DD.F" } else { "with the feature" };
            assert!(says(&name).contains(expected), "{}", says(&name));
        }
    }

    #[test]
    fn auto_names_a_device_that_is_not_there() {
        for device in ["doca:ff:1f.7;lib=/nowhere", "ioat:ff:1f.7;lib=/nowhere", "dsa:wq99.9;sysfs=/nowhere"]
        {
            let error = open(&format!("auto:device={device}")).expect_err(device);
            let text = error.to_string();
            assert!(text.contains(device) && !error.hint().is_empty(), "{text}");
        }
    }

    #[test]
    fn auto_takes_a_device_by_name() {
        let engine = open("auto:device=sim:profile=dsa;clock=real,prefer=measured").expect("it opens");
        assert!(engine.info().device.contains("dsa, seed 0, real clock"), "{engine:?}");
        assert!(format!("{engine:?}").contains("AutoReport"), "{engine:?}");
        let alone = open("auto:device=none").expect("it opens");
        assert_eq!(format!("{alone:?}"), format!("{:?}", open("cpu").expect("it opens")));
        assert!(open("auto:device=none").is_ok(), "the CPU");
        let engine = open("auto:device=sim:seed=7|sim:seed=8;profile=dsa").expect("it opens");
        let device = &engine.info().device;
        assert!(device.contains("seed 7") && device.contains("dsa, seed 8"), "{device}");
        let why = engine.explain().expect("it has a report");
        assert!(why.matches("descriptors: 0 by the device").count() == 2, "{why}");
    }

    #[cfg(all(feature = "doca", feature = "ioat"))]
    #[test]
    fn untrusted_names_load_no_code() {
        for name in [
            "doca:lib=/nowhere",
            "doca:03:00.0,lib=/nowhere",
            "ioat:00:04.0,cores=1,lib=/nowhere",
            "auto:device=doca:lib=/nowhere",
            "auto:device=ioat:00:04.0;lib=/nowhere,prefer=device",
            "auto:device=sim|doca:lib=/nowhere",
        ] {
            let missing = error(name);
            assert_eq!(missing.kind(), ErrorKind::MissingSdk);
            assert!(missing.to_string().contains("/nowhere"), "{missing}");
            let refused = parse_untrusted(name).expect_err(name);
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
            assert!(refused.to_string().contains("lib=") && refused.to_string().contains(name), "{refused}");
        }
        assert_eq!(parse_untrusted("doca:lib=").expect_err("it has lib").kind(), ErrorKind::PermissionDenied);
        for name in [
            "auto",
            "auto:device=sim:seed=7;depth=4",
            "cpu:threads=2",
            "sim:seed=7",
            "doca",
            "doca:03:00.0,depth=4",
            "ioat:00:04.0",
        ] {
            assert_eq!(parse_untrusted(name).expect(name).to_string(), name);
        }
        assert_eq!(parse_untrusted("cpo").expect_err("no such engine").kind(), ErrorKind::InvalidArgument);
    }

    #[cfg(all(feature = "doca", feature = "rdma"))]
    #[test]
    fn untrusted_names_choose_no_network() {
        for name in [
            "rdma:listen=0.0.0.0:7",
            "rdma:mlx5_0,listen=10.0.0.1:0",
            "auto:device=sim|rdma:listen=[::1]:7",
            "verify+rdma:listen=0.0.0.0:7,sample=2",
            "doca:export=rdma",
        ] {
            let refused = parse_untrusted(name).expect_err(name);
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
            assert!(!refused.hint().is_empty(), "{refused}");
        }
        for name in ["rdma:mlx5_0,port=2,gid=3,sl=1,mtu=1024,timeout=9,depth=4", "doca:depth=4"] {
            assert_eq!(parse_untrusted(name).expect(name).to_string(), name);
        }
    }

    #[cfg(feature = "dsa")]
    #[test]
    fn untrusted_names_choose_no_device_files() {
        for name in ["dsa:dev=/nowhere", "dsa:wq0.0,sysfs=/nowhere"] {
            assert_eq!(parse_untrusted(name).expect_err(name).kind(), ErrorKind::PermissionDenied);
        }
        assert_eq!(
            parse_untrusted("dsa:wq0.0,depth=4").expect("it is allowed").to_string(),
            "dsa:wq0.0,depth=4"
        );
        let missing = error("dsa:sysfs=/nowhere");
        let expected =
            if cfg!(target_arch = "x86_64") { ErrorKind::NotFound } else { ErrorKind::Unsupported };
        assert_eq!(missing.kind(), expected, "{missing}");
    }

    #[cfg(all(feature = "doca", feature = "ioat"))]
    proptest::proptest! {
        /// No variant of an option's key can pass a directory to the backend.
        #[test]
        fn no_untrusted_name_sets_a_directory(
            backend in "doca|ioat",
            pairs in proptest::collection::vec(("lib|LIB|lib_dir| lib|depth|export|cores|[a-z]{1,4}", "[0-9a-z/]{0,4}"), 1..4),
        ) {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            if let Ok(name) = parse_untrusted(&format!("{backend}:{}", pairs.join(","))) {
                let lib_dir = match &*backend {
                    "doca" => dma_doca::DocaOptions::from_name(&name).ok().and_then(|o| o.lib_dir),
                    _ => dma_ioat::IoatOptions::from_name(&name).ok().and_then(|o| o.lib_dir),
                };
                proptest::prop_assert_eq!(lib_dir, None);
            }
        }
    }
}
