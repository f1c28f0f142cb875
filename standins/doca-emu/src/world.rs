//! The configured devices, and the sources of the configuration.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex, OnceLock};

use dma_process::lock;
use dma_standin::config::{ConfigError, from_environment};

use crate::c_abi::{Handle, INVALID, Out, Outcome, c, c_calls};
use crate::card::Card;
use crate::config::{Config, VERSION};
use crate::dev::Info;

pub(crate) struct DeviceSet {
    pub(crate) version: CString,
    /// Functions that this process can list and open.
    pub(crate) infos: Vec<Arc<Info>>,
}

impl DeviceSet {
    /// Makes the devices of a configuration.
    /// Errors: the number of a card that cannot be made, and the reason.
    pub(crate) fn new(config: Config) -> Result<Arc<Self>, String> {
        let mut infos = Vec::new();
        for (card, number) in config.cards.into_iter().zip(1..) {
            let card = Arc::new(Card::new(card).map_err(|problem| format!("card {number}: {problem}"))?);
            let seen = card.config.function.iter().zip(0..).filter(|(function, _)| function.seen);
            infos.extend(seen.map(|(_, index)| Arc::new(Info::new(Arc::clone(&card), index))));
        }
        Ok(Arc::new(Self { version: config.version, infos }))
    }
}

thread_local! {
    static OF_THREAD: RefCell<Option<Arc<DeviceSet>>> = const { RefCell::new(None) };
}

/// Makes this thread's calls of `doca_devinfo_create_list` list new devices of the configuration `text`.
///
/// With `None`, the calls list the devices that the environment configures. Open devices and lists stay
/// valid.
///
/// # Errors
///
/// Returns an error, with the reason, if the text is not a valid configuration.
pub fn use_config(text: Option<&str>) -> Result<(), ConfigError> {
    let world = text
        .map(|text| {
            let error = |problem| ConfigError { source_name: "configuration".to_owned(), problem };
            Config::parse(text).and_then(DeviceSet::new).map_err(error)
        })
        .transpose()?;
    OF_THREAD.set(world);
    Ok(())
}

/// Returns the devices. They stay the same as long as the environment variables do not change.
/// Errors: the reason why the configuration is not valid.
pub(crate) fn world() -> Result<Arc<DeviceSet>, ConfigError> {
    static LAST: Mutex<Option<(String, Arc<DeviceSet>)>> = Mutex::new(None);
    if let Some(world) = OF_THREAD.with_borrow(Clone::clone) {
        return Ok(world);
    }
    let (source_name, text) = from_environment("DOCA_EMU_CONFIG", "DOCA_EMU")?;
    let mut last = lock(&LAST);
    match &*last {
        Some((before, world)) if *before == text => Ok(Arc::clone(world)),
        _ => {
            let world = Config::parse(&text)
                .and_then(DeviceSet::new)
                .map_err(|problem| ConfigError { source_name, problem })?;
            *last = Some((text, Arc::clone(&world)));
            Ok(world)
        }
    }
}

/// Returns the time of the card that has a function at the address `pci`. This is the machine's time, or the
/// card's own if its clock is virtual. `None` if this thread lists no device with this address.
#[must_use]
pub fn model_time(pci: &str) -> Option<std::time::Duration> {
    let (world, address) = (world().ok()?, crate::config::whole_address(pci)?);
    let info = world.infos.iter().find(|info| info.function().pci == address)?;
    Some(info.card.engine().now().into())
}

pub(crate) fn version() -> &'static CStr {
    // The string is never freed, so the pointer that C gets stays valid.
    static STATED: OnceLock<CString> = OnceLock::new();
    STATED.get_or_init(|| {
        world().map_or_else(|_| CString::new(VERSION).unwrap_or_default(), |world| world.version.clone())
    })
}

static LISTS: Lists<Info> = Lists::new();

c_calls! {
    /// Lists the devices. If it returns `BAD_CONFIG`, a line on standard error names the mistake in the
    /// configuration.
    fn doca_devinfo_create_list
        | doca_devinfo_list_create(dev_list: Out<*const Handle<Info>>, nb_devs: Out<u32>) {
        dev_list.check()?;
        nb_devs.check()?;
        let world = world().map_err(|error| {
            eprintln!("DOCA stand-in: {error}");
            c::DOCA_ERROR_BAD_CONFIG
        })?;
        nb_devs.put(world.infos.len() as u32)?;
        dev_list.put(LISTS.create(world.infos.clone()))
    }
    /// Destroys a list. Open devices stay valid.
    fn doca_devinfo_destroy_list
        | doca_devinfo_list_destroy(dev_list: *const Handle<Info>) { LISTS.destroy(dev_list) }
    /// Returns the configured version, or the version of the headers if none is configured.
    fn doca_version_runtime() -> *const c_char { version().as_ptr() }
}

/// All lists of one kind that exist: C has not destroyed them yet.
pub(crate) struct Lists<T>(Mutex<Vec<List<T>>>);

struct List<T> {
    /// The handles, and a NULL after them. Because of the NULL, no array is empty, so all lists have
    /// different addresses.
    array: Box<[Handle<T>]>,
    _alive: Vec<Arc<T>>,
}

// SAFETY: the list owns references to the objects that its handles point to, and these objects are `Send` and
// `Sync`.
unsafe impl<T: Send + Sync> Send for List<T> {}

impl<T> Lists<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Makes an array of handles of `objects`. The array lives until C destroys it.
    pub(crate) fn create(&self, objects: Vec<Arc<T>>) -> *const Handle<T> {
        // SAFETY: the list keeps the objects alive until C destroys it, and C uses them only until then, or
        // after it has opened them.
        let handles = objects.iter().map(|object| unsafe { Handle::of(&**object) });
        let array: Box<[_]> = handles.chain([Handle::NULL]).collect();
        let address = array.as_ptr();
        lock(&self.0).push(List { array, _alive: objects });
        address
    }

    /// Destroys a list.
    /// Errors: `INVALID_VALUE` if `array` is not a list of this kind.
    pub(crate) fn destroy(&self, array: *const Handle<T>) -> Outcome {
        let mut lists = lock(&self.0);
        let place = lists.iter().position(|list| std::ptr::eq(list.array.as_ptr(), array)).ok_or(INVALID)?;
        lists.swap_remove(place);
        Ok(())
    }
}
