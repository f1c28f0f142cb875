//! The calls of `doca_sync_event.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::hint;
use std::ptr::{self, NonNull};

use super::event::{Compare, Event};
use super::value::{UserNumber, Value};
use crate::buf::Buf;
use crate::c_abi::{Code, Handle, INVALID, In, Out, Outcome, c, c_calls, getters, pointer_to, require};
use crate::dev::{Dev, Info};

pub(super) fn supported(devinfo: &Handle<Info>) -> Outcome {
    require(devinfo.get()?.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED)
}

fn add_location(event: &Handle<Event>, publisher: bool) -> Outcome {
    event.get()?.add_location(publisher, None)
}

getters! {
    doca_sync_event_get(event: Event) -> u64 { event.get()? }
}

c_calls! {
    /// Makes an event whose number is 0.
    fn doca_sync_event_create(event: Out<Handle<Event>>) { event.make(|| Ok(Handle::give_rc(Event::new()?))) }
    /// Imports an event of another process from its descriptor. Returns `INVALID_VALUE` if the
    /// descriptor is truncated, altered, or of another card, or if the event was destroyed.
    fn doca_sync_event_create_from_export(
        dev: Handle<Dev>,
        data: In<u8>,
        sz: usize,
        event: Out<Handle<Event>>,
    ) {
        event.check()?;
        let dev = dev.arc()?;
        require(dev.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: C passes the descriptor's length beside it, and does not change the descriptor during the
        // call.
        let data = unsafe { data.slice(sz) }?;
        event.put(Handle::give_rc(Event::import(dev, data)?))
    }
    /// Destroys the event. Returns `IN_USE` if the event is started. After that, calls on imports of the
    /// event fail.
    fn doca_sync_event_destroy(event: Handle<Event>) {
        event.get()?.close()?;
        event.take_rc().map(drop)
    }
    fn doca_sync_event_add_publisher_location_cpu | doca_sync_event_publisher_add_location_cpu(
        event: Handle<Event>,
        dev: Handle<Dev>,
    ) {
        event.get()?.add_location(true, Some(dev.arc()?))
    }
    fn doca_sync_event_add_publisher_location_remote_pci
        | doca_sync_event_add_publisher_location_dpu | doca_sync_event_publisher_add_location_dpu(
        event: Handle<Event>,
    ) {
        add_location(&event, true)
    }
    fn doca_sync_event_add_subscriber_location_cpu | doca_sync_event_subscriber_add_location_cpu(
        event: Handle<Event>,
        dev: Handle<Dev>,
    ) {
        event.get()?.add_location(false, Some(dev.arc()?))
    }
    fn doca_sync_event_add_subscriber_location_remote_pci
        | doca_sync_event_add_subscriber_location_dpu | doca_sync_event_subscriber_add_location_dpu(
        event: Handle<Event>,
    ) {
        add_location(&event, false)
    }
    /// Makes the event use the number at this address, which must be aligned to 8 bytes. The event starts
    /// with the value at this address. Such an event cannot be exported.
    fn doca_sync_event_set_addr(event: Handle<Event>, addr: *mut u64) {
        let event = event.get()?;
        let addr = NonNull::new(addr).filter(|addr| addr.is_aligned()).ok_or(INVALID)?;
        // SAFETY: the address is not NULL and is aligned. The program keeps the number as long as the event,
        // and accesses it only atomically.
        event.set_value(Value::User(unsafe { UserNumber::new(addr) }))
    }
    /// Makes the event use the number in the buffer's data, which has 8 bytes. The program must keep the
    /// buffer as long as the event. The buffer's memory must belong to this process, and be writable for
    /// devices. Such an event cannot be exported.
    fn doca_sync_event_set_doca_buf(event: Handle<Event>, buf: Handle<Buf>) {
        let (event, buf) = (event.get()?, buf.get()?);
        event.require_configurable()?;
        require(buf.data_len() == 8 && buf.next().is_none() && !buf.is_chained() && buf.is_sound(), INVALID)?;
        let memory = buf.memory().ok_or(INVALID)?;
        require(memory.may_write(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let addr = buf.local_data().ok_or(c::DOCA_ERROR_NOT_SUPPORTED)?;
        let addr = NonNull::new(ptr::with_exposed_provenance_mut::<u64>(addr));
        let addr = addr.filter(|addr| addr.is_aligned()).ok_or(INVALID)?;
        // SAFETY: the address has 8 bytes of memory registered for writing, and is aligned. The program keeps
        // the buffer as long as the event, and accesses the number only atomically.
        event.set_value(Value::User(unsafe { UserNumber::new(addr) }))
    }
    /// Starts an event that is not used as a context. Returns `BAD_STATE` unless the event has a publisher
    /// and a subscriber.
    fn doca_sync_event_start(event: Handle<Event>) { event.get()?.start_alone() }
    fn doca_sync_event_stop(event: Handle<Event>) { event.get()?.stop_alone() }
    /// Makes a descriptor for the other side of the card. The event owns the descriptor.
    fn doca_sync_event_export_to_remote_pci | doca_sync_event_export_to_dpu(
        event: Handle<Event>,
        dev: Handle<Dev>,
        data: Out<*const u8>,
        sz: Out<usize>,
    ) {
        data.check()?;
        sz.check()?;
        let (start, length) = event.get()?.export(dev.get()?)?;
        data.put(start)?;
        sz.put(length)
    }
    /// Adds `value` to the number, and writes the previous number.
    fn doca_sync_event_update_add(event: Handle<Event>, value: u64, fetched: Out<u64>) {
        fetched.make(|| event.get()?.add(value))
    }
    fn doca_sync_event_update_set(event: Handle<Event>, value: u64) { event.get()?.set(value) }
    /// Blocks until the masked number is greater than `value`. Returns `IO_FAILED` if the other side is gone.
    fn doca_sync_event_wait_gt(event: Handle<Event>, value: u64, mask: u64) {
        event.get()?.wait(Compare::Greater, value, mask, hint::spin_loop)
    }
    /// Blocks until the masked number is greater than `value`, and yields the processor meanwhile. Returns
    /// `IO_FAILED` if the other side is gone.
    fn doca_sync_event_wait_gt_yield(event: Handle<Event>, value: u64, mask: u64) {
        event.get()?.wait(Compare::Greater, value, mask, std::thread::yield_now)
    }
    /// Blocks until the masked number is equal to `value`. Returns `IO_FAILED` if the other side is gone.
    fn doca_sync_event_wait_eq(event: Handle<Event>, value: u64, mask: u64) {
        event.get()?.wait(Compare::Equal, value, mask, hint::spin_loop)
    }
    /// Blocks until the masked number is equal to `value`, and yields the processor meanwhile. Returns
    /// `IO_FAILED` if the other side is gone.
    fn doca_sync_event_wait_eq_yield(event: Handle<Event>, value: u64, mask: u64) {
        event.get()?.wait(Compare::Equal, value, mask, std::thread::yield_now)
    }
    /// Blocks until the masked number differs from `value`. Returns `IO_FAILED` if the other side is gone.
    fn doca_sync_event_wait_neq(event: Handle<Event>, value: u64, mask: u64) {
        event.get()?.wait(Compare::NotEqual, value, mask, hint::spin_loop)
    }
    /// Blocks until the masked number differs from `value`, and yields the processor meanwhile. Returns
    /// `IO_FAILED` if the other side is gone.
    fn doca_sync_event_wait_neq_yield(event: Handle<Event>, value: u64, mask: u64) {
        event.get()?.wait(Compare::NotEqual, value, mask, std::thread::yield_now)
    }
}

#[cfg(not(workq))]
c_calls! {
    /// Makes the event a context. Returns NULL if the event was started without a context.
    fn doca_sync_event_as_ctx(event: Handle<Event>) -> *mut c::doca_ctx {
        let ctx = event.get().ok().and_then(Event::as_ctx);
        ctx.map_or(ptr::null_mut(), pointer_to)
    }
}

fn unsupported(devinfo: &Handle<Info>) -> Outcome {
    devinfo.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
}

/// Declares calls that only check a device.
macro_rules! capabilities {
    ($check:ident: $($name:ident $(| $old:ident)*,)*) => {
        c_calls! { $(fn $name $(| $old)*(devinfo: Handle<Info>) { $check(&devinfo) })* }
    };
}

capabilities! {
    supported:
    doca_sync_event_cap_is_create_from_export_supported | doca_sync_event_get_create_from_export_supported,
    doca_sync_event_cap_is_export_to_remote_pci_supported
        | doca_sync_event_cap_is_export_to_dpu_supported | doca_sync_event_get_export_to_dpu_supported,
}

capabilities! {
    unsupported:
    doca_sync_event_cap_remote_net_is_create_from_export_supported,
    doca_sync_event_cap_is_export_to_dpa_supported | doca_sync_event_get_export_to_dpa_supported,
    doca_sync_event_cap_is_export_to_gpu_supported | doca_sync_event_get_export_to_gpu_supported,
    doca_sync_event_cap_is_export_to_remote_net_supported,
    doca_sync_event_cap_remote_net_is_export_to_dpa_supported,
    doca_sync_event_cap_remote_net_is_export_to_gpu_supported,
}

/// Declares calls for events in places that the stand-in lacks: they check that no argument is NULL.
macro_rules! elsewhere {
    ($($name:ident $(| $old:ident)*($($arg:ident: $type:ty),*);)*) => {
        c_calls! {
            $(fn $name $(| $old)*(event: Handle<Event>, $($arg: $type),*) {
                event.get()?;
                require(true $(&& !$arg.is_null())*, INVALID)?;
                Err(c::DOCA_ERROR_NOT_SUPPORTED)
            })*
        }
    };
}

elsewhere! {
    doca_sync_event_add_publisher_location_dpa
        | doca_sync_event_publisher_add_location_dpa(dpa: *const c::doca_dpa);
    doca_sync_event_add_publisher_location_gpu
        | doca_sync_event_publisher_add_location_gpu(gpu: *const c::doca_gpu);
    doca_sync_event_add_publisher_location_remote_net();
    doca_sync_event_add_subscriber_location_dpa
        | doca_sync_event_subscriber_add_location_dpa(dpa: *const c::doca_dpa);
    doca_sync_event_add_subscriber_location_gpu
        | doca_sync_event_subscriber_add_location_gpu(gpu: *const c::doca_gpu);
    doca_sync_event_get_dpa_handle
        | doca_sync_event_export_to_dpa(dpa: *const c::doca_dpa, handle: *mut c::doca_dpa_dev_sync_event_t);
    doca_sync_event_get_gpu_handle
        | doca_sync_event_export_to_gpu(gpu: *const c::doca_gpu, handle: *mut *mut c::doca_gpu_dev_sync_event_t);
    doca_sync_event_export_to_remote_net(data: *mut *const u8, sz: *mut usize);
}

type RemoteNet = *const c::doca_sync_event_remote_net;

/// Returns an error for calls that take a network event. Such events are never created, so a program cannot
/// pass one.
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
    fn doca_sync_event_remote_net_destroy(event: RemoteNet) -> Code { no_net_event(event, true) }
    fn doca_sync_event_remote_net_get_dpa_handle | doca_sync_event_remote_net_export_to_dpa(
        event: RemoteNet,
        dpa: *const c::doca_dpa,
        handle: *mut c::doca_dpa_dev_sync_event_remote_net_t,
    ) -> Code {
        no_net_event(event, !dpa.is_null() && !handle.is_null())
    }
    fn doca_sync_event_remote_net_get_gpu_handle | doca_sync_event_remote_net_export_to_gpu(
        event: RemoteNet,
        gpu: *const c::doca_gpu,
        handle: *mut c::doca_gpu_dev_sync_event_remote_net_t,
    ) -> Code {
        no_net_event(event, !gpu.is_null() && !handle.is_null())
    }
}
