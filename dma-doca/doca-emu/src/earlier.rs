//! Calls of DOCA 2.5 and before that later versions have by other names, or not at all. Those of the comm
//! channel are in `comch`, and those of DOCA 1.5 to 2.2 alone in `workq`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_char;

use crate::c_abi::{Code, Handle, Out, c, older_calls, renamed};
use crate::dev::{Dev, Info};
use crate::log::calls::{self as log, BackendHandle};
use crate::sync_event::{Event, calls as event, unsupported_calls as elsewhere};

type RemoteNet = *const c::doca_sync_event_remote_net;
type Dpa = *const c::doca_dpa;
type Gpu = *const c::doca_gpu;

renamed! {
    fn doca_log_backend_create_with_buffer(
        buffer: *mut c_char, capacity: usize, handler: c::log_flush_callback, backend: Out<BackendHandle>,
    ) = log::doca_log_backend_create_with_buf;
    fn doca_log_backend_create_with_buffer_sdk(
        buffer: *mut c_char, capacity: usize, handler: c::log_flush_callback, backend: Out<BackendHandle>,
    ) = log::doca_log_backend_create_with_buf_sdk;
    fn doca_sync_event_add_publisher_location_dpu(it: Handle<Event>)
        = event::doca_sync_event_add_publisher_location_remote_pci;
    fn doca_sync_event_add_subscriber_location_dpu(it: Handle<Event>)
        = event::doca_sync_event_add_subscriber_location_remote_pci;
    fn doca_sync_event_export_to_dpu(it: Handle<Event>, dev: Handle<Dev>, data: Out<*const u8>, sz: Out<usize>)
        = event::doca_sync_event_export_to_remote_pci;
    fn doca_sync_event_cap_is_export_to_dpu_supported(devinfo: Handle<Info>)
        = event::doca_sync_event_cap_is_export_to_remote_pci_supported;
    fn doca_sync_event_export_to_dpa(it: Handle<Event>, dpa: Dpa, handle: *mut c::doca_dpa_dev_sync_event_t)
        = elsewhere::doca_sync_event_get_dpa_handle;
    fn doca_sync_event_export_to_gpu(
        it: Handle<Event>, gpu: Gpu, handle: *mut *mut c::doca_gpu_dev_sync_event_t,
    ) = elsewhere::doca_sync_event_get_gpu_handle;
    fn doca_sync_event_remote_net_export_to_dpa(
        it: RemoteNet, dpa: Dpa, handle: *mut c::doca_dpa_dev_sync_event_remote_net_t,
    ) -> Code = elsewhere::doca_sync_event_remote_net_get_dpa_handle;
    fn doca_sync_event_remote_net_export_to_gpu(
        it: RemoteNet, gpu: Gpu, handle: *mut c::doca_gpu_dev_sync_event_remote_net_t,
    ) -> Code = elsewhere::doca_sync_event_remote_net_get_gpu_handle;
}

older_calls! {
    /// Does nothing: there is no gRPC here.
    fn doca_argp_set_grpc_program() -> () {}
    /// `NOT_SUPPORTED`.
    fn doca_argp_get_grpc_addr(address: Out<*const c_char>) {
        address.check()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }
}
