//! A stand-in for SPDK.
