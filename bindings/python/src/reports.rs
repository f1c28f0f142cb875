//! `discover`, `doctor` and `backends`: what this machine has.

use dma::Verdict;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::engine::describe;
use crate::error::raise;
use crate::interpreter::detached;

/// Lists the engines of this machine, as dicts: the name, and the description or the error. `dma.discover`
/// converts them.
#[pyfunction]
pub(crate) fn discover(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for found in detached(py, dma::discover) {
        let dict = PyDict::new(py);
        dict.set_item("name", found.name.to_string())?;
        match &found.info {
            Ok(info) => {
                dict.set_item("info", describe(py, info)?)?;
                dict.set_item("error", py.None())?;
            }
            Err(e) => {
                dict.set_item("info", py.None())?;
                dict.set_item("error", raise(py, e).into_value(py))?;
            }
        }
        list.append(dict)?;
    }
    Ok(list)
}

/// Diagnoses backends, as dicts. `dma.doctor` converts them.
#[pyfunction]
pub(crate) fn doctor(py: Python<'_>, names: Vec<String>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for diagnosis in detached(py, || dma::doctor(&names)).map_err(|e| raise(py, &e))? {
        let findings = PyList::empty(py);
        for finding in diagnosis.findings {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Warning => "warning",
                Verdict::Bad => "bad",
            };
            findings.append((finding.what, verdict, finding.found, finding.fix))?;
        }
        let dict = PyDict::new(py);
        dict.set_item("name", diagnosis.name)?;
        dict.set_item("hardware", diagnosis.is_hardware)?;
        dict.set_item("usable", diagnosis.is_usable)?;
        dict.set_item("findings", findings)?;
        list.append(dict)?;
    }
    Ok(list)
}

/// Lists the backends and their options, as dicts. `dma.backends` converts them.
#[pyfunction]
pub(crate) fn backends(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for backend in dma::backends() {
        let options = PyList::empty(py);
        for option in backend.name_format().options {
            options.append((option.key, option.value, option.default, option.about))?;
        }
        let dict = PyDict::new(py);
        dict.set_item("name", backend.name())?;
        dict.set_item("about", backend.about())?;
        dict.set_item("hardware", backend.is_hardware())?;
        dict.set_item("options", options)?;
        list.append(dict)?;
    }
    Ok(list)
}
