//! Choosing among devices by address and name.

use dma_core::{Error, ErrorKind, PciAddress, Result};

use super::FunctionKind;
use super::list::{Item, List};
use crate::error::error;
use crate::options::DocaOptions;

/// The device that `options` name, if `problem` returns none for it.
pub(crate) fn pick<'a>(
    list: &'a List,
    options: &DocaOptions,
    problem: impl Fn(&Item<'_>) -> Option<Error>,
) -> Result<Item<'a>> {
    let named = |item: &Item<'_>| {
        options.address.is_none_or(|address| is_at(&item.address(), address))
            && options.interface.as_ref().is_none_or(|name| {
                item.interface().as_ref() == Some(name) || item.ib_device().as_ref() == Some(name)
            })
    };
    let found: Vec<_> = list.items().filter(named).collect();
    if found.is_empty() {
        return Err(none(list, options));
    }
    // Without an address, any usable device will do.
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
    // Sub-functions share the address of their physical function, which is preferred unless `interface` names
    // one.
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
            .with_hint("give the interface as well"));
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

/// True if a device's address, as the SDK writes it, is `wanted`.
pub(super) fn is_at(address: &str, wanted: PciAddress) -> bool {
    address.parse().is_ok_and(|address: PciAddress| address == wanted)
}
