//! One API for hardware memory copies.
