//! The calls of `doca_sync_event.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::hint;
use std::ptr::{self, NonNull};

use super::event::{Compare, Event};
use super::value::Value;
use crate::buf::Buf;
use crate::dev::{Dev, Info};
use crate::door::{Code, Handle, INVALID, In, Out, answer, c, require};

/// Makes an event, whose number is 0.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_create(event: Out<Handle<Event>>) -> Code {
    answer(|| {
        event.check()?;
        event.put(Handle::give_rc(Event::new()?))
    })
}

/// Makes an event of another process's, from its descriptor. `INVALID_VALUE` if that is truncated, altered, of another
/// card, or of an event that is gone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_create_from_export(
    dev: Handle<Dev>,
    data: In<u8>,
    sz: usize,
    event: Out<Handle<Event>>,
) -> Code {
    answer(|| {
        event.check()?;
        let dev = dev.arc()?;
        require(dev.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED)?;
        event.put(Handle::give_rc(Event::import(dev, data.slice(sz)?)?))
    })
}

/// Destroys an event that is not started; otherwise `IN_USE`. Who imported it is told by errors.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_destroy(event: Handle<Event>) -> Code {
    answer(|| {
        event.get()?.close()?;
        event.take_rc().map(drop)
    })
}

fn supported(devinfo: &Handle<Info>) -> Code {
    answer(|| require(devinfo.get()?.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED))
}

/// Whether the device can import events.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_is_create_from_export_supported(devinfo: Handle<Info>) -> Code {
    supported(&devinfo)
}

/// Whether the device can export events to the other side.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_is_export_to_remote_pci_supported(devinfo: Handle<Info>) -> Code {
    supported(&devinfo)
}

fn add_location(event: &Handle<Event>, publisher: bool) -> Code {
    answer(|| event.get()?.add_location(publisher, None))
}

/// The CPU changes the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_publisher_location_cpu(event: Handle<Event>, dev: Handle<Dev>) -> Code {
    answer(|| event.get()?.add_location(true, Some(dev.arc()?)))
}

/// The CPU waits for the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_subscriber_location_cpu(event: Handle<Event>, dev: Handle<Dev>) -> Code {
    answer(|| event.get()?.add_location(false, Some(dev.arc()?)))
}

/// The other side changes the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_publisher_location_remote_pci(event: Handle<Event>) -> Code {
    add_location(&event, true)
}

/// The other side waits for the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_add_subscriber_location_remote_pci(event: Handle<Event>) -> Code {
    add_location(&event, false)
}

/// The number is at this address, aligned to 8 bytes, as it stands there. Such an event cannot be exported.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_set_addr(event: Handle<Event>, addr: *mut u64) -> Code {
    answer(|| {
        let event = event.get()?;
        let addr = NonNull::new(addr).filter(|addr| addr.is_aligned()).ok_or(INVALID)?;
        event.set_value(Value::User(addr))
    })
}

/// The number is the 8 bytes of data of this buffer, which the program keeps as long as the event, in memory of this
/// process that devices may write. Such an event cannot be exported.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_set_doca_buf(event: Handle<Event>, buf: Handle<Buf>) -> Code {
    answer(|| {
        let (event, buf) = (event.get()?, buf.get()?);
        event.require_configurable()?;
        require(buf.data_len() == 8 && buf.next().is_none() && !buf.is_chained() && buf.is_sound(), INVALID)?;
        let memory = buf.memory().ok_or(INVALID)?;
        require(memory.may_write(), c::DOCA_ERROR_NOT_PERMITTED)?;
        let addr = buf.local_data().ok_or(c::DOCA_ERROR_NOT_SUPPORTED)?;
        let addr = NonNull::new(ptr::with_exposed_provenance_mut::<u64>(addr));
        event.set_value(Value::User(addr.filter(|addr| addr.is_aligned()).ok_or(INVALID)?))
    })
}

/// Starts an event that is no context. `BAD_STATE` unless it has a publisher and a subscriber.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_start(event: Handle<Event>) -> Code {
    answer(|| event.get()?.start_alone())
}

/// Stops it.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_stop(event: Handle<Event>) -> Code {
    answer(|| event.get()?.stop_alone())
}

/// The event as a context, and nothing else from now on; NULL if it was started alone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_as_ctx(event: Handle<Event>) -> *mut c::doca_ctx {
    let ctx = event.get().ok().and_then(Event::as_ctx);
    ctx.map_or(ptr::null_mut(), |ctx| Handle::of(ctx).cast())
}

/// A descriptor for the other side, which stays the event's.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_export_to_remote_pci(
    event: Handle<Event>,
    dev: Handle<Dev>,
    data: Out<*const u8>,
    sz: Out<usize>,
) -> Code {
    answer(|| {
        data.check()?;
        sz.check()?;
        let (start, length) = event.get()?.export(dev.get()?)?;
        data.put(start)?;
        sz.put(length)
    })
}

/// Reads the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_get(event: Handle<Event>, value: Out<u64>) -> Code {
    answer(|| {
        value.check()?;
        value.put(event.get()?.get()?)
    })
}

/// Adds to the number, and tells what it was.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_update_add(event: Handle<Event>, value: u64, fetched: Out<u64>) -> Code {
    answer(|| {
        fetched.check()?;
        fetched.put(event.get()?.add(value)?)
    })
}

/// Sets the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_update_set(event: Handle<Event>, value: u64) -> Code {
    answer(|| event.get()?.set(value))
}

/// Blocks until the masked number is greater than the value; `IO_FAILED` if the other side is gone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_wait_gt(event: Handle<Event>, value: u64, mask: u64) -> Code {
    answer(|| event.get()?.wait(Compare::Greater, value, mask, hint::spin_loop))
}

/// Blocks, giving other threads the processor, until the masked number is greater than the value; `IO_FAILED` if the other side is gone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_wait_gt_yield(event: Handle<Event>, value: u64, mask: u64) -> Code {
    answer(|| event.get()?.wait(Compare::Greater, value, mask, std::thread::yield_now))
}

/// Blocks until the masked number is equal to the value; `IO_FAILED` if the other side is gone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_wait_eq(event: Handle<Event>, value: u64, mask: u64) -> Code {
    answer(|| event.get()?.wait(Compare::Equal, value, mask, hint::spin_loop))
}

/// Blocks, giving other threads the processor, until the masked number is equal to the value; `IO_FAILED` if the other side is gone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_wait_eq_yield(event: Handle<Event>, value: u64, mask: u64) -> Code {
    answer(|| event.get()?.wait(Compare::Equal, value, mask, std::thread::yield_now))
}

/// Blocks until the masked number is other than the value; `IO_FAILED` if the other side is gone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_wait_neq(event: Handle<Event>, value: u64, mask: u64) -> Code {
    answer(|| event.get()?.wait(Compare::NotEqual, value, mask, hint::spin_loop))
}

/// Blocks, giving other threads the processor, until the masked number is other than the value; `IO_FAILED` if the other side is gone.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_wait_neq_yield(event: Handle<Event>, value: u64, mask: u64) -> Code {
    answer(|| event.get()?.wait(Compare::NotEqual, value, mask, std::thread::yield_now))
}
