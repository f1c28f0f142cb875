//! `doca_clock.h` of DOCA 3.2: the device's clocks are the host's.
#![expect(unsafe_code, reason = "functions that C calls by name, and the processor's counter")]

use std::sync::Arc;

use crate::c_abi::{Handle, INVALID, Mark, Out, Outcome, c, c_calls, object, require};
use crate::dev::{Dev, Info};

const NANOS: u64 = 1_000_000_000;

// The types of clocks in `doca_clock.h`.
const NIC_FREE_RUNNING: u64 = 1;
const NIC_REAL_TIME: u64 = 1 << 1;
const NIC_DPA_TIMER: u64 = 1 << 8;
const HOST_COUNTER_CYCLES: u64 = 1 << 16;
const HOST_REAL_TIME: u64 = 1 << 17;
const HOST_MONOTONIC: u64 = 1 << 18;
const HOST_MONOTONIC_RAW: u64 = 1 << 19;

/// A clock: `struct doca_clock`.
pub(crate) struct Clock {
    mark: Mark,
    _dev: Arc<Dev>,
}

object!(Clock, 0xc1_0c_00_01);

/// `union doca_clock_timespec_t`: seconds and nanoseconds, or a counter value in the first field.
#[repr(C)]
pub(crate) struct Stamp {
    first: u64,
    nanos: u64,
}

/// A clock's value: nanoseconds, or cycles of the counter.
#[derive(Clone, Copy)]
enum Time {
    Nanos(u64),
    Cycles(u64),
}

impl Time {
    /// Reads the clock of this type. `NOT_SUPPORTED` for the data path accelerator's clocks and for
    /// unknown types.
    fn of(kind: u64) -> Outcome<Self> {
        let id = match kind {
            HOST_COUNTER_CYCLES => return Ok(Self::Cycles(cycles())),
            NIC_REAL_TIME | HOST_REAL_TIME => libc::CLOCK_REALTIME,
            HOST_MONOTONIC => libc::CLOCK_MONOTONIC,
            NIC_FREE_RUNNING | HOST_MONOTONIC_RAW => libc::CLOCK_MONOTONIC_RAW,
            _ => return Err(c::DOCA_ERROR_NOT_SUPPORTED),
        };
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes a timespec. All kernels have these clocks, so it succeeds.
        unsafe { libc::clock_gettime(id, &raw mut time) };
        Ok(Self::Nanos(time.tv_sec.cast_unsigned() * NANOS + time.tv_nsec.cast_unsigned()))
    }

    const fn number(self) -> u64 {
        match self {
            Self::Nanos(number) | Self::Cycles(number) => number,
        }
    }

    /// Returns the value plus `by`.
    const fn later(self, by: u64) -> Self {
        match self {
            Self::Nanos(number) => Self::Nanos(number + by),
            Self::Cycles(number) => Self::Cycles(number + by),
        }
    }

    const fn stamp(self) -> Stamp {
        match self {
            Self::Nanos(number) => Stamp { first: number / NANOS, nanos: number % NANOS },
            Self::Cycles(number) => Stamp { first: number, nanos: 0 },
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has this instruction, and Linux lets programs execute it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn cycles() -> u64 {
    let counter: u64;
    // SAFETY: Linux lets programs read the counter. The instruction changes no memory, stack or other
    // register.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) counter, options(nomem, nostack)) };
    counter
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cycles() -> u64 {
    Time::of(HOST_MONOTONIC_RAW).map_or(0, Time::number)
}

c_calls! {
    fn doca_clock_cap_nic_free_running_is_supported(devinfo: Handle<Info>) { devinfo.get().map(|_| ()) }
    fn doca_clock_cap_nic_real_time_is_supported(devinfo: Handle<Info>) { devinfo.get().map(|_| ()) }
    /// Returns `NOT_SUPPORTED`, because the stand-in has no data path accelerator (DPA).
    fn doca_clock_cap_nic_dpa_timer_is_supported(devinfo: Handle<Info>) {
        devinfo.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    fn doca_clock_create(dev: Handle<Dev>, clock: Out<Handle<Clock>>) {
        clock.make(|| Ok(Handle::new_rc(Clock { mark: Mark::of::<Clock>(), _dev: dev.arc()? })))
    }
    fn doca_clock_destroy(clock: Handle<Clock>) { clock.take_rc().map(drop) }
    fn doca_clock_get_timestamp(clock: Handle<Clock>, clock_type: u64, clock_ts: Out<Stamp>) {
        clock_ts.make(|| {
            clock.get()?;
            Ok(Time::of(clock_type)?.stamp())
        })
    }
    /// Reads the device's clock between two readings of the primary clock. The primary clock's result
    /// is their midpoint.
    fn doca_clock_get_crosstimestamp(
        clock: Handle<Clock>,
        primary_clock_type: u64,
        nic_clock_type: u64,
        primary_clock_ts: Out<Stamp>,
        nic_clock_ts: Out<Stamp>,
        error_margin_nsecs: Out<u64>,
    ) {
        clock.get()?;
        primary_clock_ts.check()?;
        nic_clock_ts.check()?;
        error_margin_nsecs.check()?;
        let is_nic = matches!(nic_clock_type, NIC_FREE_RUNNING | NIC_REAL_TIME | NIC_DPA_TIMER);
        require(is_nic, INVALID)?;
        let before = Time::of(primary_clock_type)?;
        let nic = Time::of(nic_clock_type)?;
        let half = (Time::of(primary_clock_type)?.number().saturating_sub(before.number())).div_ceil(2);
        primary_clock_ts.put(before.later(half).stamp())?;
        nic_clock_ts.put(nic.stamp())?;
        error_margin_nsecs.put(half)
    }
}
