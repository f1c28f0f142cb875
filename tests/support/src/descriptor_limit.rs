//! The limit of open descriptors, for tests that fill a table of connections: both ends are in one process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's soft limit of open descriptors to `count`, unless it is higher already.
///
/// # Panics
/// If the hard limit is below `count`. A test cannot raise it.
pub fn raise_to(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), ..limit }).unwrap_or_else(|e| {
            panic!(
                "this test needs {count} descriptors, and `ulimit -Hn` allows {}: {e}",
                limit.maximum.unwrap_or(0)
            )
        });
    }
}
