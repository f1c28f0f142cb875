//! A software DMA device.
//!
//! | module | what | time | for |
//! |---|---|---|---|
//! | [`cpu`] | the CPU as an engine | as fast as this machine copies | production, wherever there is no device |
//! | [`sim`] | a modelled device as an engine | as long as on the device, on a virtual or the real clock | tests, and measuring what a device would bring |
//! | [`model`] | the device model itself: channels, memory protection, faults, profiles made from published measurements | virtual | other interfaces in front of it |
//! | [`remote`] | memory shared between processes of one machine | | both engines |
//!
//! What the simulator supports, rejects, and does unlike real devices is listed at [`sim`].

pub mod cpu;
pub mod model;
pub mod remote;
pub mod sim;
