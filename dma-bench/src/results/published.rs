//! Models compared with published figures. None of these figures was measured on this machine.

use dma::EngineName;
use dma::sim::SimOptions;
use dma::sim::model::published;
use dma::sim::sim::Clock;

use crate::results::Published;

/// The profiles of devices with published figures.
pub(crate) const PUBLISHED: [&str; 4] = ["bluefield2", "bluefield3", "ioat", "dsa"];

/// Returns the profile if `engine` is a simulated engine that changes no option of its profile and has a
/// virtual clock.
pub(crate) fn profile_of(engine: &str) -> Option<&'static str> {
    let name: EngineName = engine.parse().ok()?;
    if name.backend() != "sim" {
        return None;
    }
    let options = SimOptions::from_name(&name).ok()?;
    let as_published = options.changed().is_empty() && options.clock != Clock::Real;
    PUBLISHED.into_iter().find(|name| as_published && *name == options.profile.name)
}

/// Compares each profile of the simulated engines once with all figures that were published for its
/// device. Engines with changed options are left out.
pub(crate) fn compare(engines: &[String]) -> Vec<Published> {
    let mut profiles: Vec<&str> = Vec::new();
    for engine in engines {
        profiles.extend(profile_of(engine).filter(|p| !profiles.contains(p)));
    }
    profiles.into_iter().flat_map(of).collect()
}

/// Compares one profile with its published figures. Returns an empty list for a profile without published
/// figures.
pub(crate) fn of(profile: &str) -> Vec<Published> {
    let rows = published::compare(profile).unwrap_or_default();
    rows.into_iter()
        .map(|row| Published {
            profile: row.profile.to_owned(),
            direction: format!("{:?}", row.direction).to_lowercase(),
            size: row.size,
            quantity: row.quantity.to_string(),
            published: row.published,
            simulated: row.simulated,
            tolerance: row.tolerance,
            holds: row.holds(),
            source: row.source.to_owned(),
            load: row.load,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_come_within_their_tolerance() {
        let changed =
            ["sim:profile=ioat,latency=1us", "sim:profile=ioat,clock=real", "sim:profile=ioat,depth=7"];
        for engine in changed {
            assert_eq!(profile_of(engine), None, "{engine}");
        }
        let engines = ["cpu", "sim:seed=1,profile=dsa", "sim:profile=dsa", "sim"]
            .into_iter()
            .chain(changed)
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let rows = compare(&engines);
        assert_eq!(rows.len(), 33, "dsa is compared once, and ideal is not compared");
        for row in rows {
            assert!(row.holds, "{row:?}");
        }
    }
}
