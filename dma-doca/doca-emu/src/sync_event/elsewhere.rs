//! The calls of `doca_sync_event.h` for places that are not here: GPUs, data path accelerators, the network.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use super::event::Event;
use crate::dev::{Dev, Info};
use crate::door::{Code, Handle, INVALID, answer, c, require};

fn unsupported(devinfo: &Handle<Info>) -> Code {
    answer(|| {
        devinfo.get()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

fn elsewhere(event: &Handle<Event>, complete: bool) -> Code {
    answer(|| {
        event.get()?;
        require(complete, INVALID)?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// No event of a network was ever made, so there is none that could be passed.
fn no_net_event(event: *const c::doca_sync_event_remote_net, complete: bool) -> Code {
    if event.is_null() || !complete { INVALID } else { c::DOCA_ERROR_NOT_SUPPORTED }
}

/// There is no network here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_publisher_location_remote_net(event: Handle<Event>) -> Code {
    elsewhere(&event, true)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_publisher_location_dpa(
    event: Handle<Event>,
    dpa: *const c::doca_dpa,
) -> Code {
    elsewhere(&event, !dpa.is_null())
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_subscriber_location_dpa(
    event: Handle<Event>,
    dpa: *const c::doca_dpa,
) -> Code {
    elsewhere(&event, !dpa.is_null())
}

/// There is no GPU here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_publisher_location_gpu(
    event: Handle<Event>,
    gpu: *const c::doca_gpu,
) -> Code {
    elsewhere(&event, !gpu.is_null())
}

/// There is no GPU here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_subscriber_location_gpu(
    event: Handle<Event>,
    gpu: *const c::doca_gpu,
) -> Code {
    elsewhere(&event, !gpu.is_null())
}

/// No device can.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_is_export_to_dpa_supported(devinfo: Handle<Info>) -> Code {
    unsupported(&devinfo)
}

/// No device can.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_is_export_to_gpu_supported(devinfo: Handle<Info>) -> Code {
    unsupported(&devinfo)
}

/// No device can.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_is_export_to_remote_net_supported(devinfo: Handle<Info>) -> Code {
    unsupported(&devinfo)
}

/// No device can.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_remote_net_is_create_from_export_supported(devinfo: Handle<Info>) -> Code {
    unsupported(&devinfo)
}

/// No device can.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_remote_net_is_export_to_dpa_supported(devinfo: Handle<Info>) -> Code {
    unsupported(&devinfo)
}

/// No device can.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_remote_net_is_export_to_gpu_supported(devinfo: Handle<Info>) -> Code {
    unsupported(&devinfo)
}

/// There is no network here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_remote_net_create_from_export(
    dev: Handle<Dev>,
    data: *const u8,
    _sz: usize,
    event: *mut *mut c::doca_sync_event_remote_net,
) -> Code {
    answer(|| {
        dev.get()?;
        require(!data.is_null() && !event.is_null(), INVALID)?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// There is no network here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_remote_net_destroy(event: *const c::doca_sync_event_remote_net) -> Code {
    no_net_event(event, true)
}

/// There is no network here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_export_to_remote_net(
    event: Handle<Event>,
    data: *mut *const u8,
    sz: *mut usize,
) -> Code {
    elsewhere(&event, !data.is_null() && !sz.is_null())
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_get_dpa_handle(
    event: Handle<Event>,
    dpa: *const c::doca_dpa,
    handle: *mut c::doca_dpa_dev_sync_event_t,
) -> Code {
    elsewhere(&event, !dpa.is_null() && !handle.is_null())
}

/// There is no GPU here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_get_gpu_handle(
    event: Handle<Event>,
    gpu: *const c::doca_gpu,
    handle: *mut *mut c::doca_gpu_dev_sync_event_t,
) -> Code {
    elsewhere(&event, !gpu.is_null() && !handle.is_null())
}

/// There is no network here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_remote_net_get_dpa_handle(
    event: *const c::doca_sync_event_remote_net,
    dpa: *const c::doca_dpa,
    handle: *mut c::doca_dpa_dev_sync_event_remote_net_t,
) -> Code {
    no_net_event(event, !dpa.is_null() && !handle.is_null())
}

/// There is no network here.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_remote_net_get_gpu_handle(
    event: *const c::doca_sync_event_remote_net,
    gpu: *const c::doca_gpu,
    handle: *mut c::doca_gpu_dev_sync_event_remote_net_t,
) -> Code {
    no_net_event(event, !gpu.is_null() && !handle.is_null())
}
