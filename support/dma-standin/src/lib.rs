//! Shared by the stand-in SDKs, DOCA's and SPDK's: reading their configuration.

pub mod config;
