//! `doca_argp.h`: the calls that later versions lack.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_char;

use crate::c_abi::{Out, c, workq_calls};

workq_calls! {
    /// Does nothing: there is no gRPC here.
    fn doca_argp_set_grpc_program() -> () {}
    /// `NOT_SUPPORTED`.
    fn doca_argp_get_grpc_addr(address: Out<*const c_char>) {
        address.check()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }
}
