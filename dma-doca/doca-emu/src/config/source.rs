//! Where the configuration comes from, and the devices that it makes.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env, fs};

use super::{Config, VERSION};
use crate::world::World;

/// Text of a configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {problem}")]
pub struct ConfigError {
    /// Where the text is from.
    pub source_name: String,
    /// What is wrong, where, and what would be right.
    pub problem: String,
}

thread_local! {
    /// What [`use_config`] set.
    static OF_THREAD: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
}

/// Has this thread's calls of `doca_devinfo_create_list` list the devices of `text`, new and in their first state, instead of those that the
/// environment says; `None` ends that. Devices that were listed before live on with whoever holds them.
///
/// # Errors
///
/// The text is no configuration.
pub fn use_config(text: Option<&str>) -> Result<(), ConfigError> {
    let world = text
        .map(|text| {
            let error = |problem| ConfigError { source_name: "configuration".to_owned(), problem };
            Config::parse(text).and_then(World::new).map_err(error)
        })
        .transpose()?;
    OF_THREAD.set(world);
    Ok(())
}

/// The configuration's text as the environment has it, and where that is.
fn of_environment() -> Result<(String, String), ConfigError> {
    let file = env::var_os("DOCA_EMU_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let text = env::var_os("DOCA_EMU").filter(|text| !text.is_empty());
    match (file, text) {
        (Some(file), None) => {
            let source_name = format!("DOCA_EMU_CONFIG={}", file.display());
            match fs::read_to_string(&file) {
                Ok(text) => Ok((source_name, text)),
                Err(error) => Err(ConfigError { source_name, problem: format!("cannot read it: {error}") }),
            }
        }
        (None, Some(text)) => {
            let source_name = "DOCA_EMU".to_owned();
            match text.into_string() {
                Ok(text) => Ok((source_name, text)),
                Err(_) => Err(ConfigError { source_name, problem: "it is not UTF-8".to_owned() }),
            }
        }
        (Some(_), Some(_)) => Err(ConfigError {
            source_name: "DOCA_EMU_CONFIG and DOCA_EMU".to_owned(),
            problem: "both are set; unset one".to_owned(),
        }),
        (None, None) => Ok(("the default configuration".to_owned(), String::new())),
    }
}

/// The devices that there are. As long as the environment says the same, they are the same.
///
/// # Errors
///
/// The configuration cannot be.
pub(crate) fn world() -> Result<Arc<World>, ConfigError> {
    static LAST: Mutex<Option<(String, Arc<World>)>> = Mutex::new(None);
    if let Some(world) = OF_THREAD.with_borrow(Clone::clone) {
        return Ok(world);
    }
    let (source_name, text) = of_environment()?;
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some((before, world)) if *before == text => Ok(Arc::clone(world)),
        _ => {
            let world = Config::parse(&text)
                .and_then(World::new)
                .map_err(|problem| ConfigError { source_name, problem })?;
            *last = Some((text, Arc::clone(&world)));
            Ok(world)
        }
    }
}

/// How much time has passed for the card that has a function at this address, among the devices that this thread would list: by the
/// machine's clock, or by the card's own if that is virtual. `None` if there is no such device.
#[must_use]
pub fn model_time(pci: &str) -> Option<std::time::Duration> {
    let (world, address) = (world().ok()?, crate::pci::whole(pci)?);
    let info = world.infos.iter().find(|info| info.function().pci == address)?;
    Some(info.card.engine().now().into())
}

/// The version to state.
pub(crate) fn version() -> &'static CStr {
    // The string lives for ever: the first one asked for is the one that is stated.
    static STATED: OnceLock<CString> = OnceLock::new();
    STATED.get_or_init(|| {
        world().map_or_else(|_| CString::new(VERSION).unwrap_or_default(), |world| world.version.clone())
    })
}
