//! [`CpuOptions`]: how a CPU engine is to work.

use dma_core::{CacheHint, Error, ErrorKind, Result};

/// How a [`CpuEngine`](super::CpuEngine) is to work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuOptions {
    /// Threads that copy besides those that poll queues; all queues of the engine share them. 0: a copy is done by whoever polls,
    /// on that core alone. `None` (the default): one less than the CPUs that this process may use, and not more than
    /// [`DEFAULT_THREADS_MAX`](Self::DEFAULT_THREADS_MAX), as a few cores saturate the memory. At most [`THREADS_MAX`](Self::THREADS_MAX). They sleep once there has been nothing to do for
    /// 20 us, or as long as waking one takes (up to 200 us), which the engine measures. They are woken for work that is worth it: what is over sooner without
    /// them is done by whoever polls, as it polls.
    pub threads: Option<usize>,
    /// Operations of up to this many bytes are done at once, by whoever submits them; longer ones are cut into chunks for the
    /// threads and the poller. Default 32 KiB; at most [`INLINE_MAX`](Self::INLINE_MAX), so that submitting stays short. 0: everything
    /// goes the long way. Otherwise copies of up to 1 MiB that prove to be within the submitter's own cache are done at once too, whatever
    /// this says, unless it proves to be faster to share them. So are, now and then, those that are to show whether they are.
    pub inline_limit: usize,
    /// What queues assume that are opened with [`CacheHint::Auto`]. Default [`CacheHint::Auto`]: learn from timings.
    pub hint: CacheHint,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { threads: None, inline_limit: 32 << 10, hint: CacheHint::Auto }
    }
}

impl CpuOptions {
    /// The most that [`threads`](Self::threads) can be.
    pub const THREADS_MAX: usize = 1024;
    /// The most threads that an engine has if nobody says how many.
    pub const DEFAULT_THREADS_MAX: usize = 15;
    /// The most that [`inline_limit`](Self::inline_limit) can be: 1 MiB.
    pub const INLINE_MAX: usize = 1 << 20;

    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of threads besides those that poll; 0 for none.
    #[must_use]
    pub const fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets up to how many bytes an operation is done when it is submitted.
    #[must_use]
    pub const fn with_inline_limit(mut self, bytes: usize) -> Self {
        self.inline_limit = bytes;
        self
    }

    /// Sets what queues assume that are opened with [`CacheHint::Auto`].
    #[must_use]
    pub const fn with_hint(mut self, hint: CacheHint) -> Self {
        self.hint = hint;
        self
    }

    /// The number of threads, if all numbers are in range.
    pub(super) fn check(&self) -> Result<usize> {
        let within = |what: &str, asked: usize, most: usize| {
            if asked <= most {
                return Ok(asked);
            }
            Err(Error::new(ErrorKind::OutOfRange, format!("{what} {asked}"))
                .with_operation("open engine")
                .with_backend(super::BACKEND)
                .with_numbers(asked as u64, most as u64)
                .with_hint(format!("{what} may be 0 to {most}")))
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
