//! Code that the stand-in SDKs share: reads their configuration.

pub mod config;
