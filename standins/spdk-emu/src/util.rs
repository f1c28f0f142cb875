//! Arithmetic, and the call that identifies the stand-in.
#![expect(unsafe_code, reason = "the names are C's")]

use std::ffi::{c_char, c_int};

use crate::c_abi::{Ptr, c_calls};
use crate::config::Config;

c_calls! {
    fn spdk_u32log2(x: u32) -> u32 { x.checked_ilog2().unwrap_or(0) }
    fn spdk_u64log2(x: u64) -> u64 { x.checked_ilog2().unwrap_or(0).into() }

    /// Writes the profiles of the channels, and the sources of their numbers. No SPDK has this call, so it
    /// identifies the stand-in. Returns 0, or -1 if the configuration is invalid or the room too small.
    fn spdk_emu_model(model: Ptr<c_char>, size: usize) -> c_int {
        let Ok(config) = Config::in_use() else { return -1 };
        let mut profiles: Vec<_> =
            config.sockets.iter().map(|s| format!("profile {} ({})", s.profile.name, s.profile.source)).collect();
        profiles.dedup();
        // SAFETY: C passes NULL, or a buffer with room for `size` bytes.
        let fits = unsafe { model.put_text(size, &format!("spdk-emu, {}", profiles.join(", "))) };
        if fits { 0 } else { -1 }
    }
}
