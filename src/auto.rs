//! `auto`: the best engine of this machine.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

/// The backend `auto`: today always [`cpu`](crate::cpu).
pub(crate) static BACKEND: Auto = Auto;

#[derive(Debug)]
pub(crate) struct Auto;

/// The best that every machine has.
fn best() -> &'static dyn Backend {
    &dma_cpu::BACKEND
}

impl Backend for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn about(&self) -> &'static str {
        "the best that this machine has: today `cpu`"
    }

    fn stands_for(&self) -> Option<&'static str> {
        Some(best().name())
    }

    fn device(&self) -> Option<&'static str> {
        None
    }

    fn is_hardware(&self) -> bool {
        best().is_hardware()
    }

    fn options(&self) -> &'static [OptionInfo] {
        &[]
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        name.read_options(self, |_, value| Err(value.not_read()))?;
        best().open(&EngineName::of(best()))
    }

    fn discover(&self) -> Vec<Discovered> {
        best().discover()
    }

    fn doctor(&self) -> Vec<Finding> {
        best().doctor()
    }
}
