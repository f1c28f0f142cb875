//! [`doctor`]: checks whether each backend can be used on this machine, and names remedies.

use dma_core::{Backend, EngineName, Finding, Result};

use crate::registry::{backend, backends};

/// The diagnosis of one backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The backend's name.
    pub name: &'static str,
    /// True if the backend drives a device, not the CPU.
    pub is_hardware: bool,
    /// True if an engine can be opened now. For a hardware backend, this is false if only a simulated device
    /// can be opened.
    pub is_usable: bool,
    /// True if an engine can be opened by the backend's name, even if it is a simulated device.
    pub opens: bool,
    /// The results of the checks.
    pub findings: Vec<Finding>,
}

/// Checks the named backends, or all backends if `names` is empty. The checks are the backends' requirements
/// on this machine, and whether their devices can be opened.
///
/// ```
/// let cpu = &dma::doctor(&["cpu"])?[0];
/// assert!(cpu.is_usable && !cpu.is_hardware);
/// assert!(dma::doctor(&[])?.len() > 1);
/// # Ok::<(), dma::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidArgument` for a name that no backend has, with the closest name as a hint.
pub fn doctor(names: &[&str]) -> Result<Vec<Diagnosis>> {
    let mut wanted = Vec::new();
    for &name in names {
        let named = backend(name).map_err(|e| match name.contains([':', '+']) {
            true => e.with_hint("name a backend alone, without options and wrappers, such as cpu"),
            false => e,
        });
        let named = named.map_err(|e| e.with_operation("doctor"))?;
        wanted.push(named.delegates_to().unwrap_or(named.name()));
    }
    let own = backends().into_iter().filter(|backend| backend.delegates_to().is_none());
    let chosen = own.filter(|backend| wanted.is_empty() || wanted.contains(&backend.name()));
    Ok(chosen.map(examine).collect())
}

fn examine(backend: &dyn Backend) -> Diagnosis {
    let mut findings = backend.doctor();
    let (mut is_usable, mut opens) = (false, false);
    for found in backend.discover() {
        let what = format!("opens as `{}`", found.name);
        findings.push(match found.info {
            Ok(info) => {
                opens = true;
                is_usable |= !(backend.is_hardware() && info.model.is_some());
                let model = info.model.map(|model| format!("; a model: {model}")).unwrap_or_default();
                Finding::ok(what, format!("{}, version {}{model}", info.device, info.version))
            }
            Err(e) => Finding::bad(what, e.to_string(), e.hint()),
        });
    }
    if findings.is_empty() {
        let what = format!("opens as `{}`", EngineName::of(backend.name_format()));
        findings.push(Finding::bad(what, "the backend lists no device", "ask the author of this backend"));
    }
    Diagnosis { name: backend.name(), is_hardware: backend.is_hardware(), is_usable, opens, findings }
}
