//! Declarations of SPDK's env and I/OAT calls.
