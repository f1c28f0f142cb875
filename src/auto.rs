//! `auto`: chooses between the CPU and devices for each copy.

use std::sync::Arc;

use dma_core::{
    Backend, Capabilities, Discovered, DmaEngine, EngineName, Error, ErrorKind, Finding, NameFormat,
    OptionInfo, Result,
};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};

use crate::wrappers::Wrapped;

/// The format of names of `auto`.
const NAME_FORMAT: NameFormat = NameFormat::new(
    "auto",
    &[
        OptionInfo::new(
            "device",
            "ENGINE|any|none",
            "any",
            "engines in addition to the CPU, separated by `|`; write `;` instead of each comma in a name",
        ),
        OptionInfo::new(
            "prefer",
            "measured|device",
            "measured",
            "how to choose between the CPU and a device",
        ),
    ],
);

/// The backend `auto`, with the functions of the registry that it calls. The registry makes it.
#[derive(Debug)]
pub(crate) struct Auto {
    pub(crate) backends: fn() -> Vec<&'static dyn Backend>,
    pub(crate) backend: fn(&str) -> Result<&'static dyn Backend>,
    pub(crate) open_name: fn(&EngineName) -> Result<Arc<dyn DmaEngine>>,
}

/// Returns the backend `cpu`, which works on every machine.
fn cpu() -> &'static dyn Backend {
    &dma_cpu::BACKEND
}

/// The value of the option `device` for all devices that are found.
const ANY: &str = "any";
/// The value of the option `device` for no device.
const NONE: &str = "none";
/// Separates the names of devices in the option `device`.
const AND: char = '|';

/// Backends whose devices `auto` uses only if they are named. A search for I/OAT channels sets up SPDK's
/// environment in the process. With an RDMA card or a GPU, all memory is pinned, and copies within the host
/// cross the bus twice. A GPU's context occupies a part of its memory.
const BY_NAME: [&str; 3] = ["ioat", "rdma", "cuda"];

impl Auto {
    /// Opens the first usable hardware device of each backend. Simulated devices are not used.
    fn any_devices(&self) -> Vec<Arc<dyn DmaEngine>> {
        let hardware = (self.backends)().into_iter().filter(|backend| {
            backend.is_hardware() && backend.delegates_to().is_none() && !BY_NAME.contains(&backend.name())
        });
        let usable = |found: &Discovered| found.info.as_ref().is_ok_and(|info| info.model.is_none());
        let opened = |backend: &dyn Backend| {
            let found = backend.discover().into_iter().filter(usable);
            found.map(|found| (self.open_name)(&found.name)).find_map(|opened| {
                opened
                    .inspect_err(
                        |error| dma_core::guarded_log!(warn, %error, "auto cannot open a device, and continues without it"),
                    )
                    .ok()
            })
        };
        let devices = hardware.filter(|backend| backend.name() != cpu().name()).filter_map(opened);
        devices.filter(|device| device.info().capabilities.contains(Capabilities::REGISTER)).collect()
    }

    /// Returns the names of the devices in `name`; no names for [`ANY`] and [`NONE`]. In the option, `;`
    /// stands for each comma of a device's name.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a device is not a valid name, is named twice, or is `auto` or the CPU, even with
    /// a wrapper.
    pub(crate) fn devices_of(&self, name: &EngineName) -> Result<Vec<EngineName>> {
        let Some(text) = name.option("device").filter(|text| ![ANY, NONE].contains(text)) else {
            return Ok(Vec::new());
        };
        let mut devices = Vec::new();
        for one in text.split(AND) {
            let refused = |kind, message: &str| {
                Error::new(kind, format!("option device={text}: {message}")).with_backend(self.name())
            };
            let named = one.replace(';', ",").parse().and_then(|device: EngineName| {
                let mut within = device.clone();
                while let Some(wrapped) = Wrapped::of(&within)? {
                    within = wrapped.inner;
                }
                let kind = (self.backend)(within.backend())?.name();
                Ok((device, kind == self.name() || kind == cpu().name()))
            });
            match named {
                Ok((device, false)) if devices.contains(&device) => {
                    return Err(refused(ErrorKind::InvalidArgument, &format!("`{device}` is named twice"))
                        .with_hint("name each device once"));
                }
                Ok((device, false)) => devices.push(device),
                Ok((_, true)) => {
                    return Err(refused(
                        ErrorKind::InvalidArgument,
                        "`auto` and the CPU cannot be devices of `auto`",
                    )
                    .with_hint(
                        "name a device, such as auto:device=doca:03:00.0; `auto` always uses the CPU too",
                    ));
                }
                Err(e) => return Err(refused(e.kind(), e.message()).with_hint(e.hint().to_owned())),
            }
        }
        Ok(devices)
    }
}

impl Auto {
    /// If `name` has options that may be meant for its device, adds a hint with the correct notation to the
    /// error.
    fn hint_for_device(&self, name: &EngineName, error: Error) -> Error {
        let own = |key: &str| NAME_FORMAT.options.iter().any(|info| info.key == key);
        let meant: String = name
            .options()
            .filter(|(key, _)| !own(key))
            .map(|(key, value)| format!(";{key}={value}"))
            .collect();
        match name.option("device") {
            Some(device) if ![ANY, NONE].contains(&device) && !meant.is_empty() => error.with_hint(format!(
                "write `;` for each comma in the device's name: auto:device={device}{meant}"
            )),
            _ => error,
        }
    }
}

impl Backend for Auto {
    fn name_format(&self) -> NameFormat {
        NAME_FORMAT
    }

    fn about(&self) -> &'static str {
        "the CPU, and devices for the copies that they make at lower cost"
    }

    fn delegates_to(&self) -> Option<&'static str> {
        Some(cpu().name())
    }

    fn is_hardware(&self) -> bool {
        cpu().is_hardware()
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        let mut options = AutoOptions::new();
        name.read_options(NAME_FORMAT, |key, value| match key {
            "device" => value.text().map(drop),
            "prefer" => {
                let choices = [("measured", Prefer::Measured), ("device", Prefer::Device)];
                options.prefer = value.choice(&choices)?;
                Ok(())
            }
            _ => Err(value.not_read()),
        })
        .map_err(|error| self.hint_for_device(name, error))?;
        let devices = match name.option("device") {
            Some(NONE) => Vec::new(),
            None | Some(ANY) => self.any_devices(),
            Some(_) => {
                let names = self.devices_of(name)?;
                names.iter().map(self.open_name).collect::<Result<_>>()?
            }
        };
        let cpu = cpu().open(&EngineName::of(cpu().name_format()))?;
        AutoEngine::with_devices(cpu, devices, &options).map_err(|e| e.with_backend(self.name()))
    }

    fn discover(&self) -> Vec<Discovered> {
        cpu().discover()
    }

    fn doctor(&self) -> Vec<Finding> {
        cpu().doctor()
    }
}
