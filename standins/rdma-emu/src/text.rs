//! Names of values, and rates.
#![expect(unsafe_code, reason = "defines calls of C")]

use std::ffi::{CStr, c_char, c_int};

/// Defines calls that return the name of a value, or "unknown".
macro_rules! names {
    ($($call:ident: $($name:literal)*;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $call(value: c_int) -> *const c_char {
            const NAMES: &[&CStr] = &[$($name),*];
            usize::try_from(value).ok().and_then(|at| NAMES.get(at)).map_or(c"unknown", |name| *name).as_ptr()
        }
    )*};
}
names! {
    ibv_node_type_str:
        c"invalid node type" c"InfiniBand channel adapter" c"InfiniBand switch" c"InfiniBand router" c"iWARP NIC"
        c"usNIC" c"usNIC UDP" c"unspecified";
    ibv_port_state_str:
        c"no state change (NOP)" c"down" c"init" c"armed" c"active" c"active defer";
    ibv_event_type_str:
        c"CQ error" c"local work queue catastrophic error" c"invalid request local work queue error"
        c"local access violation work queue error" c"communication established" c"send queue drained"
        c"path migrated" c"path migration request error" c"local catastrophic error" c"port active" c"port error"
        c"LID change" c"P_Key change" c"SM change" c"SRQ catastrophic error" c"SRQ limit reached"
        c"last WQE reached" c"client reregistration" c"GID table change" c"WQ fatal";
    ibv_wc_status_str:
        c"success" c"local length error" c"local QP operation error" c"local EE context operation error"
        c"local protection error" c"Work Request Flushed Error" c"memory management operation error"
        c"bad response error" c"local access error" c"remote invalid request error" c"remote access error"
        c"remote operation error" c"transport retry counter exceeded" c"RNR retry counter exceeded"
        c"local RDD violation error" c"remote invalid RD request" c"aborted error" c"invalid EE context number"
        c"invalid EE context state" c"fatal error" c"response timeout error" c"general error" c"TM error"
        c"TM software rendezvous";
}

/// Rates: `IBV_RATE_*`, the multiple of 2.5 Gbit/s or -1, and Mbit/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, -1, 28_125),
    (20, -1, 50_000),
    (21, 160, 400_000),
    (22, 240, 600_000),
    (23, 320, 800_000),
    (24, 480, 1_200_000),
];

/// Defines calls that look up a rate: the searched value, the value that is returned, and the one for unknown
/// rates.
macro_rules! rates {
    ($($call:ident($searched:tt) -> $found:tt, $unknown:literal;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $call(value: c_int) -> c_int {
            let rate = RATES.iter().find(|rate| rate.$searched == value && value >= 0);
            rate.map_or($unknown, |rate| rate.$found)
        }
    )*};
}
rates! {
    ibv_rate_to_mult(0) -> 1, -1;
    mult_to_ibv_rate(1) -> 0, 0;
    ibv_rate_to_mbps(0) -> 2, -1;
    mbps_to_ibv_rate(2) -> 0, 0;
}
