//! [`CpuOptions`]: options of a CPU engine.

use dma_core::{CacheHint, Error, ErrorKind, Result};

dma_core::options! {
    /// Options of a [`CpuEngine`](super::CpuEngine). An engine name has them as
    /// `cpu:threads=2,inline=64K,hint=cold`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CpuOptions {
        /// Number of helper threads that all queues of the engine share, at most
        /// [`THREADS_MAX`](Self::THREADS_MAX). With 0, only polling threads copy. With `None` (the default):
        /// one fewer than the CPUs that this process may use, at most
        /// [`DEFAULT_THREADS_MAX`](Self::DEFAULT_THREADS_MAX), because a few cores saturate the memory.
        /// Helpers sleep after 20 us without work, or after the measured time of a wake-up if that is longer
        /// (up to 200 us). Helpers are woken for work that takes longer than the wake-up; polling threads
        /// execute all other work.
        pub threads: Option<usize>, with_threads(Some(usize)),
            "threads": number(0..=Self::THREADS_MAX), "helper threads", default "CPUs - 1, at most 15";
        /// Maximum length of an operation, in bytes, that is executed during submission. Longer operations
        /// are split into chunks for the helpers and the polling thread. Default: 32 KiB; at most
        /// [`INLINE_MAX`](Self::INLINE_MAX), so that a submission stays short. With 0, every operation is
        /// split into chunks. With any other value, copies of up to 1 MiB within the submitter's own cache
        /// are also executed during submission, unless measurements show that sharing them is faster. Copies
        /// that belong to these measurements are also executed during submission. For operations with
        /// results, the limit is twice as high. Without helper threads, operations of up to 128 KiB are
        /// executed during submission while nothing is in flight, because no other thread could share them.
        pub inline_limit: usize = 32 << 10, with_inline_limit(usize),
            "inline": size(0..=Self::INLINE_MAX),
            "maximum length of operations that are executed during submission; twice that for operations with a result",
            default "32K";
        /// Hint of queues that are opened with [`CacheHint::Auto`]. Default: [`CacheHint::Auto`], which
        /// learns from measured times.
        pub hint: CacheHint, with_hint(CacheHint),
            "hint": choice("auto" => CacheHint::Auto, "hot" => CacheHint::Hot, "cold" => CacheHint::Cold),
            "the cache hint of queues that have none", default "auto";
    }
    names super::NAME;
}

impl CpuOptions {
    /// Maximum value of [`threads`](Self::threads).
    pub const THREADS_MAX: usize = 1024;
    /// Maximum default number of threads.
    pub const DEFAULT_THREADS_MAX: usize = 15;
    /// Maximum value of [`inline_limit`](Self::inline_limit): 1 MiB.
    pub const INLINE_MAX: usize = 1 << 20;

    /// Checks all ranges. Returns the number of threads.
    pub(super) fn check(&self) -> Result<usize> {
        let within = |what: &str, requested: usize, limit: usize| {
            if requested <= limit {
                return Ok(requested);
            }
            Err(Error::new(ErrorKind::OutOfRange, format!("{what} {requested}"))
                .with_operation("open engine")
                .with_backend(super::NAME)
                .with_numbers(requested as u64, limit as u64)
                .with_hint(format!("{what} may be 0 to {limit}")))
        };
        within("inline_limit", self.inline_limit, Self::INLINE_MAX)?;
        match self.threads {
            Some(threads) => within("threads", threads, Self::THREADS_MAX),
            None => {
                let cpus = std::thread::available_parallelism().map_or(1, usize::from);
                Ok((cpus - 1).min(Self::DEFAULT_THREADS_MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_set_every_option() {
        let options = |name: &str| CpuOptions::from_name(&name.parse().unwrap());
        let expected =
            CpuOptions::new().with_threads(3).with_inline_limit(64 << 10).with_hint(CacheHint::Cold);
        for name in ["cpu:threads=3,inline=64k,hint=cold", "cpu:hint=cold,inline=65536,threads=3"] {
            assert_eq!(options(name).unwrap(), expected);
        }
        assert_eq!(options("cpu").unwrap(), CpuOptions::new());
        for (name, kind) in [
            ("cpu:threads=1025", ErrorKind::OutOfRange),
            ("cpu:inline=2M", ErrorKind::OutOfRange),
            ("cpu:hint=warm", ErrorKind::InvalidArgument),
            ("cpu:0", ErrorKind::InvalidArgument),
        ] {
            assert_eq!(options(name).unwrap_err().kind(), kind, "{name}");
        }
    }
}
