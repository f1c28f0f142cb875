//! Presets: campaigns for frequent questions. Each is a TOML file that users can print and change.

use clap::ValueEnum;

use crate::plan::Campaign;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Copies by size, alone and 32 deep, hot and cold, and two models. Takes half a minute.
    Quick,
    /// All operations, sizes, depths and footprints, and every model. Takes many minutes.
    Full,
    /// One copy at a time: its latency.
    Latency,
    /// The smallest queue depth with 95 % of the best throughput.
    Knee,
    /// The sizes at which each engine is faster than memcpy, hot and cold, one at a time and batched.
    Crossover,
}

impl Preset {
    /// Returns the campaign as a TOML file with comments.
    pub(crate) fn toml(self) -> &'static str {
        match self {
            Self::Quick => include_str!("../presets/quick.toml"),
            Self::Full => include_str!("../presets/full.toml"),
            Self::Latency => include_str!("../presets/latency.toml"),
            Self::Knee => include_str!("../presets/knee.toml"),
            Self::Crossover => include_str!("../presets/crossover.toml"),
        }
    }

    pub(crate) fn campaign(self) -> Result<Campaign, String> {
        Campaign::from_toml(self.toml())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_sound_campaign() {
        for preset in Preset::value_variants() {
            let campaign = preset.campaign().unwrap_or_else(|e| panic!("{preset:?}: {e}"));
            assert_eq!(
                Some(campaign.name.as_str()),
                preset.to_possible_value().as_ref().map(|v| v.get_name())
            );
            let text = toml::to_string(&campaign).unwrap();
            assert_eq!(Campaign::from_toml(&text).unwrap(), campaign, "{preset:?} as a file");
        }
    }
}
