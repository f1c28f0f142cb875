//! The calls of `ioat.h`.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::ffi::{c_int, c_void};

use crate::c_abi::{Addr, Outcome, Ptr, answer, c, c_calls};
use crate::channel::{Callback, Channel, ChannelOp};
use crate::pci::{Function, Offer, walk};
use crate::pci_addr;

type Probe = Option<unsafe extern "C" fn(*mut c_void, *mut c::spdk_pci_device) -> bool>;
type Attach = Option<unsafe extern "C" fn(*mut c_void, *mut c::spdk_pci_device, *mut Channel)>;

/// Returns the channel behind the pointer if the channel is attached. Otherwise returns `-EINVAL`.
#[inline]
fn attached<'a>(channel: Ptr<Channel>) -> Outcome<&'a Channel> {
    channel.get().filter(|channel| channel.is_attached()).ok_or(-libc::EINVAL)
}

c_calls! {
    fn spdk_ioat_probe(cb_ctx: Addr, probe: Probe, attach: Attach) -> c_int {
        let (Some(probe), Some(attach)) = (probe, attach) else { return -libc::EINVAL };
        let whole = walk(|function: &'static Function| {
            let device = function.handle().raw();
            // SAFETY: the program passed this function together with this context, and the function's handle
            // is never freed.
            if !unsafe { probe(cb_ctx.raw(), device) } {
                    return function.declined();
            }
            let channel = function.channel();
            if let Err(error) = channel.attach() {
                crate::log::error(&format!("{} cannot be attached: {error}", pci_addr::format(&function.config.pci)));
                return Offer::Stop;
            }
            // SAFETY: the program passed this callback together with its context. The device and the
            // channel are never freed.
            unsafe { attach(cb_ctx.raw(), device, std::ptr::from_ref(channel).cast_mut()) };
            Offer::Accepted
        });
        if whole { 0 } else { -1 }
    }

    fn spdk_ioat_detach(channel: Ptr<Channel>) {
        if let Ok(channel) = attached(channel) {
            channel.detach();
            if let Some(function) = Function::of_channel(channel) {
                function.release(false);
            }
        }
    }

    fn spdk_ioat_get_max_descriptors(channel: Ptr<Channel>) -> u32 {
        channel.get().map_or(0, |channel| channel.config().ring)
    }

    fn spdk_ioat_get_dma_capabilities(channel: Ptr<Channel>) -> u32 {
        let fill = |channel: &Channel| {
            if channel.config().fill { c::SPDK_IOAT_ENGINE_FILL_SUPPORTED } else { 0 }
        };
        channel.get().map_or(0, |channel| c::SPDK_IOAT_ENGINE_COPY_SUPPORTED | fill(channel))
    }
}

/// Builds an operation on an attached channel. If `flush` is set, then rings the doorbell.
///
/// # Safety
///
/// See [`Channel::build`].
#[inline]
unsafe fn build(
    channel: Ptr<Channel>,
    (callback, arg): (Callback, Addr),
    work: ChannelOp,
    (dst, len): (Addr, u64),
    flush: bool,
) -> c_int {
    let built = attached(channel).and_then(|channel| {
        if matches!(work, ChannelOp::Fill { .. }) && !channel.config().fill {
            crate::log::error("the channel cannot fill");
            return Err(-1);
        }
        // SAFETY: this function's caller promises that C's buffers have `len` bytes and stay valid until the
        // callback, which may be called with `arg`.
        unsafe { channel.build(work, dst.addr(), len, callback, arg) }?;
        if flush {
            channel.flush();
        }
        Ok(())
    });
    answer(built)
}

/// Exports calls that build an operation. The fifth argument is the source or the pattern.
macro_rules! builders {
    ($($name:ident($operand:ident: $type:ty) $work:expr, $flush:literal;)*) => { c_calls! { $(
        fn $name(channel: Ptr<Channel>, arg: Addr, f: Callback, dst: Addr, $operand: $type, len: u64) -> c_int {
            // SAFETY: C's buffers have `len` bytes and stay valid until the callback, which may be called
            // with `arg`.
            unsafe { build(channel, (f, arg), $work, (dst, len), $flush) }
        }
    )* } };
}

builders! {
    spdk_ioat_build_copy(src: Addr) ChannelOp::Copy { src: src.addr() }, false;
    spdk_ioat_submit_copy(src: Addr) ChannelOp::Copy { src: src.addr() }, true;
    spdk_ioat_build_fill(pattern: u64) ChannelOp::Fill { pattern }, false;
    spdk_ioat_submit_fill(pattern: u64) ChannelOp::Fill { pattern }, true;
}

c_calls! {
    fn spdk_ioat_flush(channel: Ptr<Channel>) {
        if let Ok(channel) = attached(channel) {
            channel.flush();
        }
    }

    fn spdk_ioat_process_events(channel: Ptr<Channel>) -> c_int {
        match attached(channel).map(Channel::process) {
            Ok(Some(ended)) => ended as c_int,
            Ok(None) => -1,
            Err(errno) => errno,
        }
    }
}
