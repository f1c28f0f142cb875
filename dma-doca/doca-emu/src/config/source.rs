//! Where the configuration comes from, and the devices that it makes.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dma_sim::config::{ConfigError, from_environment};

use super::{Config, VERSION};
use crate::world::World;

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
    let (source_name, text) = from_environment("DOCA_EMU_CONFIG", "DOCA_EMU")?;
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
