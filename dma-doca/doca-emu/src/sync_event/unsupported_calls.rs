//! The calls of `doca_sync_event.h` for GPUs, data path accelerators and the network, which are not here.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use super::event::Event;
use crate::c_abi::{Code, Handle, INVALID, Outcome, c, c_calls, require};
use crate::dev::{Dev, Info};

fn unsupported(devinfo: &Handle<Info>) -> Outcome {
    devinfo.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
}

fn elsewhere(event: &Handle<Event>, complete: bool) -> Outcome {
    event.get()?;
    require(complete, INVALID)?;
    Err(c::DOCA_ERROR_NOT_SUPPORTED)
}

type RemoteNet = *const c::doca_sync_event_remote_net;

/// No event of a network is ever made, so none can be passed.
fn no_net_event(event: RemoteNet, complete: bool) -> Code {
    if event.is_null() || !complete { INVALID } else { c::DOCA_ERROR_NOT_SUPPORTED }
}

c_calls! {
    fn doca_sync_event_remote_net_create_from_export(
        dev: Handle<Dev>,
        data: *const u8,
        _sz: usize,
        event: *mut *mut c::doca_sync_event_remote_net,
    ) {
        dev.get()?;
        require(!data.is_null() && !event.is_null(), INVALID)?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }
    fn doca_sync_event_cap_remote_net_is_create_from_export_supported(devinfo: Handle<Info>) {
        unsupported(&devinfo)
    }
    fn doca_sync_event_remote_net_destroy(event: RemoteNet) -> Code { no_net_event(event, true) }
    fn doca_sync_event_add_publisher_location_dpa(event: Handle<Event>, dpa: *const c::doca_dpa) {
        elsewhere(&event, !dpa.is_null())
    }
    fn doca_sync_event_add_publisher_location_gpu(event: Handle<Event>, gpu: *const c::doca_gpu) {
        elsewhere(&event, !gpu.is_null())
    }
    fn doca_sync_event_add_publisher_location_remote_net(event: Handle<Event>) { elsewhere(&event, true) }
    fn doca_sync_event_add_subscriber_location_dpa(event: Handle<Event>, dpa: *const c::doca_dpa) {
        elsewhere(&event, !dpa.is_null())
    }
    fn doca_sync_event_add_subscriber_location_gpu(event: Handle<Event>, gpu: *const c::doca_gpu) {
        elsewhere(&event, !gpu.is_null())
    }
    fn doca_sync_event_get_dpa_handle | doca_sync_event_export_to_dpa(
        event: Handle<Event>,
        dpa: *const c::doca_dpa,
        handle: *mut c::doca_dpa_dev_sync_event_t,
    ) {
        elsewhere(&event, !dpa.is_null() && !handle.is_null())
    }
    fn doca_sync_event_cap_is_export_to_dpa_supported(devinfo: Handle<Info>) { unsupported(&devinfo) }
    fn doca_sync_event_get_gpu_handle | doca_sync_event_export_to_gpu(
        event: Handle<Event>,
        gpu: *const c::doca_gpu,
        handle: *mut *mut c::doca_gpu_dev_sync_event_t,
    ) {
        elsewhere(&event, !gpu.is_null() && !handle.is_null())
    }
    fn doca_sync_event_cap_is_export_to_gpu_supported(devinfo: Handle<Info>) { unsupported(&devinfo) }
    fn doca_sync_event_export_to_remote_net(event: Handle<Event>, data: *mut *const u8, sz: *mut usize) {
        elsewhere(&event, !data.is_null() && !sz.is_null())
    }
    fn doca_sync_event_cap_is_export_to_remote_net_supported(devinfo: Handle<Info>) { unsupported(&devinfo) }
    fn doca_sync_event_remote_net_get_dpa_handle | doca_sync_event_remote_net_export_to_dpa(
        event: RemoteNet,
        dpa: *const c::doca_dpa,
        handle: *mut c::doca_dpa_dev_sync_event_remote_net_t,
    ) -> Code {
        no_net_event(event, !dpa.is_null() && !handle.is_null())
    }
    fn doca_sync_event_cap_remote_net_is_export_to_dpa_supported(info: Handle<Info>) { unsupported(&info) }
    fn doca_sync_event_remote_net_get_gpu_handle | doca_sync_event_remote_net_export_to_gpu(
        event: RemoteNet,
        gpu: *const c::doca_gpu,
        handle: *mut c::doca_gpu_dev_sync_event_remote_net_t,
    ) -> Code {
        no_net_event(event, !gpu.is_null() && !handle.is_null())
    }
    fn doca_sync_event_cap_remote_net_is_export_to_gpu_supported(info: Handle<Info>) { unsupported(&info) }
}
