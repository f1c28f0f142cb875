//! Intel I/OAT through SPDK as an engine.
