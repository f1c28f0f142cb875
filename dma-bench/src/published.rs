//! The models against what was published: a table of its own, since nothing of it was measured here.

use dma::sim::model::published;

use crate::results::Published;

/// Compares the profiles of those engines that are simulated, each once, with every figure that was published for its device.
#[must_use]
pub fn compare(engines: &[String]) -> Vec<Published> {
    let mut profiles: Vec<&str> = Vec::new();
    for engine in engines {
        let profile = engine
            .strip_prefix("sim:")
            .and_then(|options| options.split(',').find_map(|pair| pair.strip_prefix("profile=")));
        profiles.extend(profile.filter(|p| !profiles.contains(p)));
    }
    profiles.into_iter().flat_map(of).collect()
}

/// Compares one profile; nothing for one that has nothing to compare with.
#[must_use]
pub fn of(profile: &str) -> Vec<Published> {
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
        let engines = ["cpu", "sim:seed=1,profile=dsa", "sim:profile=dsa", "sim"].map(str::to_owned);
        let rows = compare(&engines);
        assert_eq!(rows.len(), 33, "dsa once, ideal not at all");
        for row in rows {
            assert!(row.holds, "{row:?}");
        }
    }
}
