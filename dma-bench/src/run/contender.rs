//! [`Contender`]: an engine of a run, with the clock that times it.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use dma::sim::sim::Clock as SimClock;
use dma::sim::{SimEngine, SimOptions};
use dma::{DmaEngine, EngineName, Error, ErrorKind, Result};

/// An engine of a run.
#[derive(Clone)]
pub struct Contender {
    pub name: String,
    pub engine: Arc<dyn DmaEngine>,
    pub clock: Clock,
    /// True if its operations take almost no time, because the profile models no device.
    pub timeless: bool,
}

/// A clock: the computer's, or that of a simulated device.
#[derive(Clone)]
pub enum Clock {
    /// The computer's clock, counted from this moment.
    Real(Instant),
    /// The device's own clock, which polling advances.
    Virtual(Arc<SimEngine>),
}

impl Clock {
    /// Returns the nanoseconds since the clock began.
    #[inline]
    pub fn now(&self) -> u64 {
        match self {
            Self::Real(epoch) => epoch.elapsed().as_nanos() as u64,
            Self::Virtual(engine) => (engine.now().as_secs_f64() * 1e9).round() as u64,
        }
    }

    /// Returns true if this is a simulated device's virtual clock.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_virtual() { "Virtual" } else { "Real" })
    }
}

impl Contender {
    /// Opens an engine by name, as [`dma::open`] does. The clock of a simulated engine can then be read.
    pub fn open(name: &str) -> Result<Self> {
        let named = |e: Error| e.with_operation(format!("open engine `{name}`"));
        let parsed: EngineName = name.parse()?;
        if parsed.backend() == "sim" {
            let options = SimOptions::from_name(&parsed).map_err(named)?;
            let engine = Arc::new(SimEngine::open(&options).map_err(named)?);
            let clock = match engine.clock() {
                SimClock::Virtual => Clock::Virtual(Arc::clone(&engine)),
                SimClock::Real => Clock::Real(Instant::now()),
                _ => {
                    return Err(named(
                        Error::new(
                            ErrorKind::InvalidArgument,
                            "the clock of this device does not advance by itself",
                        )
                        .with_hint("use clock=virtual or clock=real"),
                    ));
                }
            };
            // On the computer's clock, the simulation itself takes time.
            let timeless = clock.is_virtual()
                && options.profile.name == "ideal"
                && options.latency.is_none()
                && options.bandwidth.is_none();
            return Ok(Self { name: name.to_owned(), engine, clock, timeless });
        }
        let (engine, clock) = (dma::open_name(&parsed)?, Clock::Real(Instant::now()));
        Ok(Self { name: name.to_owned(), engine, clock, timeless: false })
    }

    /// Returns true if the engine is a model.
    pub fn is_model(&self) -> bool {
        self.engine.info().model.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_engines_have_their_own_clock() {
        let sim = Contender::open("sim:profile=dsa").unwrap();
        assert!(sim.clock.is_virtual() && sim.is_model());
        assert_eq!(sim.clock.now(), 0, "the clock has not advanced");
        assert!(!Contender::open("sim:profile=dsa,clock=real").unwrap().clock.is_virtual());
        assert!(!Contender::open("cpu").unwrap().is_model());
        for (name, timeless) in [
            ("sim", true),
            ("sim:seed=1,depth=8", true),
            ("sim:latency=1us", false),
            ("sim:bandwidth=10GiB", false),
            ("sim:clock=real", false),
            ("sim:profile=ioat", false),
            ("cpu", false),
        ] {
            assert_eq!(Contender::open(name).unwrap().timeless, timeless, "{name}");
        }
        let error = Contender::open("sim:clock=manual").unwrap_err().to_string();
        assert!(error.contains("clock=virtual"), "{error}");
        assert!(Contender::open("cpo").unwrap_err().to_string().contains("did you mean"));
    }
}
