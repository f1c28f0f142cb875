//! Declarations of the DOCA C interface.
