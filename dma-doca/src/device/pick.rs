//! Choosing among devices by address and name.

use dma_core::{Error, ErrorKind, PciAddress, Result};

use super::FunctionKind;
use super::list::{Item, List};
use crate::error::{BACKEND, error};
use crate::options::DocaOptions;

/// The device that `options` name, if `problem` finds nothing wrong with it.
pub(crate) fn pick<'a>(
    list: &'a List,
    options: &DocaOptions,
    problem: impl Fn(&Item<'_>) -> Option<Error>,
) -> Result<Item<'a>> {
    if let Some(address) = &options.address {
        address.parse::<PciAddress>().map_err(|e| e.with_backend(BACKEND))?;
    }
    let named = |item: &Item<'_>| {
        options.address.as_ref().is_none_or(|address| same_address(&item.address(), address))
            && options.interface.as_ref().is_none_or(|name| {
                item.interface().as_ref() == Some(name) || item.ib_device().as_ref() == Some(name)
            })
    };
    let found: Vec<_> = list.items().filter(named).collect();
    if found.is_empty() {
        return Err(none(list, options));
    }
    // Somebody who names no address leaves the choice open.
    if options.address.is_none() {
        let mut first = None;
        for item in &found {
            match problem(item) {
                None => return Ok(*item),
                Some(why) => first = first.or(Some(why)),
            }
        }
        return Err(first.unwrap_or_else(|| none(list, options)));
    }
    // Sub-functions share the address of their physical function, which is meant unless a name says otherwise.
    let whole: Vec<_> = found.iter().filter(|item| item.function() != Some(FunctionKind::Sub)).collect();
    let item = match (&found[..], &whole[..]) {
        ([item], _) => item,
        (_, [item]) => *item,
        _ => {
            let which: Vec<_> = found.iter().map(describe).collect();
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("{} devices match: {}", found.len(), which.join(", ")),
            )
            .with_hint("give the whole address DDDD:BB:DD.F, or the interface as well"));
        }
    };
    problem(item).map_or(Ok(*item), Err)
}

fn none(list: &List, options: &DocaOptions) -> Error {
    let there: Vec<_> = list.items().map(|item| describe(&item)).collect();
    let asked = match (&options.address, &options.interface) {
        (Some(address), Some(name)) => format!("no device at {address} with the interface {name}"),
        (Some(address), None) => format!("no device at {address}"),
        (None, Some(name)) => format!("no device with the interface {name}"),
        (None, None) => "the SDK lists no device".to_owned(),
    };
    error(ErrorKind::NotFound, asked).with_hint(if there.is_empty() {
        "see whether a BlueField is installed (lspci -d 15b3:) and its drivers are loaded".to_owned()
    } else {
        format!("there are: {}", there.join(", "))
    })
}

fn describe(item: &Item<'_>) -> String {
    match item.interface().or_else(|| item.ib_device()) {
        Some(name) => format!("{} ({name})", item.address()),
        None => item.address(),
    }
}

/// Whether `full`, `DDDD:BB:DD.F`, is what `asked` names: the same, or, without a domain, of any domain.
pub(super) fn same_address(full: &str, asked: &str) -> bool {
    let end = full.len().checked_sub(asked.len());
    end.is_some_and(|end| {
        full.get(end..).is_some_and(|tail| tail.eq_ignore_ascii_case(asked))
            && (end == 0 || full.as_bytes()[end - 1] == b':')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_address_is_of_any_domain() {
        assert!(same_address("0000:03:00.0", "03:00.0"));
        assert!(same_address("0000:ab:00.0", "0000:AB:00.0"));
        assert!(!same_address("0000:03:00.0", "03:00.1"));
        assert!(!same_address("0000:03:00.0", "3:00.0x"));
        assert!(!same_address("03:00.0", "0000:03:00.0"));
        assert!(!same_address("0000:03:00.0", "0:03:00.0"));
    }
}
