//! Writes the declarations of the vendors' C calls.
fn main() {}
