//! Code that the stand-in SDKs share: it reads their configuration.

pub mod config;
