//! `auto`: the CPU, and a device beside it where that pays.

use std::sync::Arc;

use dma_core::{
    Backend, Discovered, DmaEngine, EngineInfo, EngineName, Error, ErrorKind, Finding, OptionInfo, Result,
};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};

use crate::registry::{backend, backends};
use crate::wrappers::Wrapped;

/// The backend `auto`.
pub(crate) static BACKEND: Auto = Auto;

#[derive(Debug)]
pub(crate) struct Auto;

/// The member that every machine has.
fn cpu() -> &'static dyn Backend {
    &dma_cpu::BACKEND
}

/// The value of `device` for the first one that there is.
const ANY: &str = "any";

/// Returns the first hardware device that can be used and is no model.
fn any_device() -> Option<EngineName> {
    let hardware = backends().into_iter().filter(|backend| backend.is_hardware());
    let found = hardware.filter(|backend| backend.stands_for().is_none()).flat_map(Backend::discover);
    let usable = |info: &Result<EngineInfo>| info.as_ref().is_ok_and(|info| info.model.is_none());
    found.filter(|found| usable(&found.info)).map(|found| found.name).next()
}

impl Auto {
    /// Returns the name of the device, if `name` has one other than [`ANY`]. In it, `;` stands for a comma.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it is no name, or if it is `auto` or the CPU, wrapped or not.
    pub(crate) fn device_of(&self, name: &EngineName) -> Result<Option<EngineName>> {
        let Some(text) = name.option("device").filter(|text| *text != ANY) else { return Ok(None) };
        let refused = |kind, message: &str| {
            Error::new(kind, format!("option device={text}: {message}")).with_backend(self.name())
        };
        let named = text.replace(';', ",").parse().and_then(|device: EngineName| {
            let mut within = device.clone();
            while let Some(wrapped) = Wrapped::of(&within)? {
                within = wrapped.inner;
            }
            let kind = backend(within.backend())?.name();
            Ok((device, kind == self.name() || kind == cpu().name()))
        });
        match named {
            Ok((device, false)) => Ok(Some(device)),
            Ok((_, true)) => Err(refused(ErrorKind::InvalidArgument, "that is no device for `auto`")
                .with_hint("name one, such as auto:device=doca:03:00.0; the CPU always belongs to `auto`")),
            Err(e) => Err(refused(e.kind(), e.message()).with_hint(e.hint().to_owned())),
        }
    }
}

impl Backend for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn about(&self) -> &'static str {
        "the CPU, and a device for the copies that are cheaper there"
    }

    fn stands_for(&self) -> Option<&'static str> {
        Some(cpu().name())
    }

    fn device(&self) -> Option<&'static str> {
        None
    }

    fn is_hardware(&self) -> bool {
        cpu().is_hardware()
    }

    fn options(&self) -> &'static [OptionInfo] {
        const {
            &[
                OptionInfo::new(
                    "device",
                    "ENGINE|any",
                    "none",
                    "engine beside the CPU; `;` for each comma in its name",
                ),
                OptionInfo::new(
                    "prefer",
                    "measured|device",
                    "measured",
                    "choice between the CPU and the device",
                ),
            ]
        }
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        let mut options = AutoOptions::new();
        name.read_options(self, |key, value| match key {
            "device" => value.text().map(drop),
            "prefer" => {
                let choices = [("measured", Prefer::Measured), ("device", Prefer::Device)];
                options.prefer = value.choice(&choices)?;
                Ok(())
            }
            _ => Err(value.not_read()),
        })?;
        let cpu = cpu().open(&EngineName::of(cpu()))?;
        let device = match name.option("device") {
            Some(ANY) => any_device(),
            _ => self.device_of(name)?,
        };
        let Some(device) = device else { return Ok(cpu) };
        let device = crate::registry::open_name(&device)?;
        Ok(Arc::new(AutoEngine::new(cpu, device, &options).map_err(|e| e.with_backend(self.name()))?))
    }

    fn discover(&self) -> Vec<Discovered> {
        cpu().discover()
    }

    fn doctor(&self) -> Vec<Finding> {
        cpu().doctor()
    }
}
