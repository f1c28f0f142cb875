//! Wrapper engines in engine names: `verify+NAME`, `meter+NAME`, `record+NAME`.

use std::sync::Arc;

use dma_core::{DmaEngine, EngineName, Error, ErrorKind, NameFormat, Result, closest_name};
use dma_layers::meter::{MeterEngine, MeterOptions};
use dma_layers::record::{RecordEngine, RecordOptions};
use dma_layers::verify::{VerifyEngine, VerifyOptions};

/// Separates a wrapper from the name of the inner engine.
const AROUND: char = '+';

/// Opens a wrapper around an inner engine. The arguments are the wrapper's name with its options, the name of
/// the inner engine, and the inner engine.
type Open = fn(&EngineName, &EngineName, Arc<dyn DmaEngine>) -> Result<Arc<dyn DmaEngine>>;

/// A type of engine that wraps an inner engine.
struct Wrapper {
    name_format: NameFormat,
    open: Open,
}

static WRAPPERS: &[Wrapper] = &[
    Wrapper { name_format: VerifyOptions::NAME_FORMAT, open: open_verify },
    Wrapper { name_format: MeterOptions::NAME_FORMAT, open: open_meter },
    Wrapper { name_format: RecordOptions::NAME_FORMAT, open: open_record },
];

fn open_verify(name: &EngineName, _: &EngineName, inner: Arc<dyn DmaEngine>) -> Result<Arc<dyn DmaEngine>> {
    let options = VerifyOptions::from_name(name)?;
    Ok(Arc::new(VerifyEngine::new(inner, &options)))
}

fn open_meter(name: &EngineName, _: &EngineName, inner: Arc<dyn DmaEngine>) -> Result<Arc<dyn DmaEngine>> {
    let options = MeterOptions::from_name(name)?;
    Ok(Arc::new(MeterEngine::new(inner, &options)))
}

fn open_record(
    name: &EngineName,
    within: &EngineName,
    inner: Arc<dyn DmaEngine>,
) -> Result<Arc<dyn DmaEngine>> {
    let options = RecordOptions::from_name(name)?.with_engine(within.to_string());
    Ok(Arc::new(RecordEngine::new(inner, &options)?))
}

/// Returns whether `name` is the name of a wrapper, without an inner engine.
pub(crate) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.iter().any(|wrapper| wrapper.name_format.backend == name)
}

/// The parts of the name of a wrapped engine.
pub(crate) struct Wrapped {
    wrapper: &'static Wrapper,
    /// The wrapper's name, with its options.
    own: EngineName,
    /// The name of the inner engine, with its device and all other options.
    pub(crate) inner: EngineName,
}

impl Wrapped {
    /// Splits the outermost wrapper from a name. Returns `None` if the name has no wrapper.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an unknown wrapper, a wrapper without an engine, or a wrapper that is used
    /// twice.
    pub(crate) fn of(name: &EngineName) -> Result<Option<Self>> {
        let Some((outer, within)) = name.backend().split_once(AROUND) else { return Ok(None) };
        let invalid = |message| Error::new(ErrorKind::InvalidArgument, message);
        let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name_format.backend == outer) else {
            let names: Vec<_> = WRAPPERS.iter().map(|wrapper| wrapper.name_format.backend).collect();
            let known = names.join(", ");
            let error = invalid(format!("unknown wrapper `{outer}`"));
            return Err(match closest_name(&outer.to_ascii_lowercase(), &names) {
                Some(close) => error.with_hint(format!("did you mean `{close}{AROUND}`? There are: {known}")),
                None => error
                    .with_hint(format!("there are: {known}; write, for example, {}{AROUND}cpu", names[0])),
            });
        };
        if within.is_empty() {
            return Err(invalid(format!("the engine after `{outer}{AROUND}` is missing"))
                .with_hint(format!("name an engine after the {AROUND}, such as {outer}{AROUND}cpu")));
        }
        if within.split(AROUND).any(|other| other == outer) {
            return Err(invalid(format!("the wrapper `{outer}` is used twice")).with_hint("use it once"));
        }
        let (mut own, mut inner) = (EngineName::new(outer)?, EngineName::new(within)?);
        if let Some(device) = name.device() {
            inner = inner.with_device(device)?;
        }
        for (key, value) in name.options() {
            let part = if wrapper.name_format.options.iter().any(|info| info.key == key) {
                &mut own
            } else {
                &mut inner
            };
            *part = part.clone().with_option(key, value)?;
        }
        Ok(Some(Self { wrapper, own, inner }))
    }

    /// Opens the wrapper around `inner`, an engine with the name in [`Self::inner`].
    ///
    /// # Errors
    ///
    /// - `InvalidArgument`, `OutOfRange`: a value of the wrapper's options is not valid.
    /// - Each error of a file that the wrapper writes.
    pub(crate) fn open_around(&self, inner: Arc<dyn DmaEngine>) -> Result<Arc<dyn DmaEngine>> {
        (self.wrapper.open)(&self.own, &self.inner, inner)
            .map_err(|e| e.with_backend(self.wrapper.name_format.backend))
    }

    /// Refuses an option of the wrapper that chooses a file.
    ///
    /// # Errors
    ///
    /// `PermissionDenied`, with the option in the message.
    pub(crate) fn refuse_untrusted(&self) -> Result<()> {
        let names_file = |key: &str| {
            self.wrapper.name_format.options.iter().any(|info| info.needs_trust && info.key == key)
        };
        match self.own.options().find(|(key, _)| names_file(key)) {
            None => Ok(()),
            Some((key, value)) => {
                let message =
                    format!("option {key}={value} would choose a file, and the name is from untrusted input");
                Err(Error::new(ErrorKind::PermissionDenied, message)
                    .with_backend(self.wrapper.name_format.backend)
                    .with_hint("leave the wrapper out"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dma_core::{DmaEngineExt, ErrorKind, QueueOptions};

    use crate::{open, parse_untrusted};

    #[test]
    fn a_wrapper_takes_its_own_options_and_leaves_the_others() {
        for name in [
            "verify+cpu",
            "verify+cpu:threads=0,sample=3",
            "verify+sim:seed=7,sample_bytes=1M,profile=dsa",
            "meter+verify+sim:seed=7,label=a,profile=dsa,sample=2",
            "verify+auto:device=sim:seed=7;profile=dsa,sample=2",
            "auto:device=verify+sim:seed=7;sample=2,prefer=device",
            "auto:device=verify+sim:faults=fail@5+lose:p=0.1;seed=7;device_memory=1M,prefer=device",
        ] {
            let engine = open(name).expect(name);
            assert!(engine.info().device.contains("with verified copies"), "{name}: {engine:?}");
            assert_eq!(parse_untrusted(name).expect(name).to_string(), name);
        }
        let engine = open("verify+sim:seed=7,profile=dsa").expect("it opens");
        assert_eq!(engine.info().backend, "sim");
        assert!(engine.info().device.contains("dsa, seed 7"), "{engine:?}");
    }

    #[test]
    fn each_wrapper_explains_its_part() {
        let engine = open("verify+meter+auto:device=sim").expect("it opens");
        let _queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let why = engine.explain().expect("wrappers explain");
        for part in ["0 verified", "queue 0: 0 done", "0 by the device"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(open("cpu").expect("it opens").explain(), None);
    }

    #[test]
    fn bad_names_say_what_would_have_been_right() {
        for (name, expected) in [
            ("verify", "verify+cpu"),
            ("verify:sample=2", "verify+cpu"),
            ("verify+", "name an engine after the +, such as verify+cpu"),
            ("verify+:sample=2", "name an engine after the +, such as verify+cpu"),
            ("meter+verify+", "name an engine after the +, such as verify+cpu"),
            ("verify+tpu", "there are: auto, cpu"),
            ("+cpu", "there are: verify, meter, record"),
            ("verify2+cpu", "did you mean `verify+`?"),
            ("verify+verify+cpu", "the wrapper `verify` is used twice"),
            ("verify+meter+verify+cpu", "the wrapper `verify` is used twice"),
            ("metre+cpu", "did you mean `meter+`?"),
            ("meter+cpu:label=", "label="),
            ("verify+cpo", "did you mean `cpu`?"),
            ("verify+cpu:sample=0", "sample=0"),
            ("verify+cpu:sample=x", "whole number"),
            ("verify+cpu:sample_bytes=x", "bytes"),
            ("verify+cpu:thread=2", "threads"),
            ("cpu:sample=2", "threads"),
            (
                "auto:device=sim:faults=fail@5,seed=7,prefer=device",
                "write `;` for each comma in the device's name: auto:device=sim:faults=fail@5;seed=7",
            ),
            ("auto:device=verify+cpu", "`auto` and the CPU cannot be devices of `auto`"),
            ("auto:device=meter+verify+auto", "`auto` and the CPU cannot be devices of `auto`"),
        ] {
            let error = open(name).expect_err(name);
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::OutOfRange), "{error}");
            let text = error.to_string();
            assert!(text.contains(name) && text.contains(expected), "{text}");
            assert!(!error.hint().is_empty(), "{text}");
        }
    }

    #[test]
    fn a_recorded_engine_names_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.trace");
        let name = format!("record+meter+cpu:threads=0,file={},buffer=64K", file.display());
        drop(open(&name).expect("it opens"));
        let trace = crate::layers::record::Trace::load(&file).expect("a trace");
        assert_eq!(trace.recorded().engine, "meter+cpu:threads=0");
        assert_eq!(parse_untrusted(&name).expect_err(&name).kind(), ErrorKind::PermissionDenied);
        for (name, expected) in [
            ("record+cpu".to_owned(), "record+cpu:file="),
            ("record+cpu:file=".to_owned(), "file="),
            (format!("record+cpu:file={}", folder.path().display()), "directory"),
            (format!("record+cpu:file={}/none/a", folder.path().display()), "create the directory"),
            (format!("record+cpu:file={},buffer=1K", file.display()), "buffer=1K"),
        ] {
            let error = open(&name).expect_err(&name).to_string();
            assert!(error.contains(&name) && error.contains(expected), "{error}");
        }
    }

    #[cfg(feature = "doca")]
    #[test]
    fn an_untrusted_wrapped_name_loads_no_code() {
        for name in ["verify+doca:lib=/nowhere", "auto:device=verify+doca:lib=/nowhere"] {
            assert_eq!(parse_untrusted(name).expect_err(name).kind(), ErrorKind::PermissionDenied);
        }
    }
}
