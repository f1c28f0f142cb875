//! A stand-in for the DOCA SDK.
