//! The calls of `ioat.h`.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::ffi::{c_int, c_void};

use super::channel::{Callback, Channel, Work};
use crate::door::{Outcome, Ptr, answer, c};
use crate::env::pci::{Function, Taken, addr, walk};

type Probe = Option<unsafe extern "C" fn(*mut c_void, *mut c::spdk_pci_device) -> bool>;
type Attach = Option<unsafe extern "C" fn(*mut c_void, *mut c::spdk_pci_device, *mut Channel)>;

/// The channel that C means, if it is attached.
#[inline]
fn attached<'a>(channel: Ptr<Channel>) -> Outcome<&'a Channel> {
    channel.get().filter(|channel| channel.is_attached()).ok_or(-libc::EINVAL)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_probe(cb_ctx: Ptr<c_void>, probe: Probe, attach: Attach) -> c_int {
    let (Some(probe), Some(attach)) = (probe, attach) else { return -libc::EINVAL };
    let whole = walk(|function: &'static Function| {
        let device = function.handle().raw();
        // SAFETY: the program's own function, with the context that it gave.
        if !unsafe { probe(cb_ctx.raw(), device) } {
            // SPDK counts it as attached all the same.
            return function.declined();
        }
        let channel = function.channel.get_or_init(|| Box::new(Channel::new(function)));
        if let Err(error) = channel.attach() {
            crate::log::error(&format!("{} cannot be attached: {error}", addr::format(&function.config.pci)));
            return Taken::Stop;
        }
        // SAFETY: as above.
        unsafe { attach(cb_ctx.raw(), device, Ptr::of(&**channel).raw()) };
        Taken::Yes
    });
    if whole { 0 } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_detach(channel: Ptr<Channel>) {
    if let Ok(channel) = attached(channel) {
        channel.detach();
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_get_max_descriptors(channel: Ptr<Channel>) -> u32 {
    channel.get().map_or(0, |channel| channel.function().socket.config.ring)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_get_dma_capabilities(channel: Ptr<Channel>) -> u32 {
    let fill = |channel: &Channel| {
        if channel.function().socket.config.fill { c::SPDK_IOAT_ENGINE_FILL_SUPPORTED } else { 0 }
    };
    channel.get().map_or(0, |channel| c::SPDK_IOAT_ENGINE_COPY_SUPPORTED | fill(channel))
}

#[inline]
fn build_copy(
    channel: Ptr<Channel>,
    arg: Ptr<c_void>,
    callback: Callback,
    (dst, src): (Ptr<c_void>, Ptr<c_void>),
    len: u64,
) -> Outcome {
    attached(channel)?.build(Work::Copy { src: src.addr() }, dst.addr(), len, callback, arg)
}

#[inline]
fn build_fill(
    channel: Ptr<Channel>,
    arg: Ptr<c_void>,
    callback: Callback,
    (dst, pattern): (Ptr<c_void>, u64),
    len: u64,
) -> Outcome {
    let channel = attached(channel)?;
    if !channel.function().socket.config.fill {
        crate::log::error("the channel has no fill");
        return Err(-1);
    }
    channel.build(Work::Fill { pattern }, dst.addr(), len, callback, arg)
}

#[inline]
fn flush_after(channel: Ptr<Channel>, built: Outcome) -> c_int {
    if built.is_ok() {
        spdk_ioat_flush(channel);
    }
    answer(built)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_build_copy(
    channel: Ptr<Channel>,
    cb_arg: Ptr<c_void>,
    cb_fn: Callback,
    dst: Ptr<c_void>,
    src: Ptr<c_void>,
    nbytes: u64,
) -> c_int {
    answer(build_copy(channel, cb_arg, cb_fn, (dst, src), nbytes))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_submit_copy(
    channel: Ptr<Channel>,
    cb_arg: Ptr<c_void>,
    cb_fn: Callback,
    dst: Ptr<c_void>,
    src: Ptr<c_void>,
    nbytes: u64,
) -> c_int {
    flush_after(channel, build_copy(channel, cb_arg, cb_fn, (dst, src), nbytes))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_build_fill(
    channel: Ptr<Channel>,
    cb_arg: Ptr<c_void>,
    cb_fn: Callback,
    dst: Ptr<c_void>,
    fill_pattern: u64,
    nbytes: u64,
) -> c_int {
    answer(build_fill(channel, cb_arg, cb_fn, (dst, fill_pattern), nbytes))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_submit_fill(
    channel: Ptr<Channel>,
    cb_arg: Ptr<c_void>,
    cb_fn: Callback,
    dst: Ptr<c_void>,
    fill_pattern: u64,
    nbytes: u64,
) -> c_int {
    flush_after(channel, build_fill(channel, cb_arg, cb_fn, (dst, fill_pattern), nbytes))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_flush(channel: Ptr<Channel>) {
    if let Ok(channel) = attached(channel) {
        channel.flush();
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ioat_process_events(channel: Ptr<Channel>) -> c_int {
    match attached(channel).map(Channel::process) {
        Ok(Some(ended)) => ended as c_int,
        Ok(None) => -1,
        Err(errno) => errno,
    }
}
