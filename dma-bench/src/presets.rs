//! The presets: campaigns for the questions that are asked most.

use clap::ValueEnum;

use crate::plan::{Campaign, Direction, Footprint, Op, SLICE, Sweep, Values};

/// A campaign that is always at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// The picture in half a minute: copies by size, alone and 32 deep, hot and cold, and two models.
    Quick,
    /// Everything: all operations, sizes, depths, and footprints, and every model. Takes many minutes.
    Full,
    /// One copy at a time: how long it takes.
    Latency,
    /// The smallest queue depth with 95 % of the best throughput.
    Knee,
    /// The size from which on each engine is faster than memcpy, hot and cold, one at a time and batched.
    Crossover,
}

const BLUEFIELD3: &str = "sim:profile=bluefield3";
const DSA: &str = "sim:profile=dsa";

fn values(text: &str) -> Values {
    // Each is a literal below, and a test reads them all.
    text.parse().unwrap_or(Values(Vec::new()))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

impl Preset {
    /// What it measures.
    #[must_use]
    pub fn campaign(self) -> Campaign {
        let name = self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        let base = Campaign { name, ..Campaign::default() };
        let sweep = Sweep::default();
        let models = |list: &[&str]| Sweep { engines: names(list), ..sweep.clone() };
        let real = Sweep { engines: names(&["real"]), ..sweep.clone() };
        let hot_and_cold = vec![Footprint::Cold, Footprint::Hot];
        let of = |sweep: &Sweep, engines: &[&str], footprints: &[Footprint]| Sweep {
            engines: names(engines),
            footprints: footprints.to_vec(),
            ..sweep.clone()
        };
        match self {
            Self::Quick => {
                let alone = Sweep { sizes: values("64..4M*4"), depths: values("1"), ..sweep.clone() };
                // 32 of longer ones are hardly faster than of 64 KiB if they are in no cache; and memcpy's and an engine's are too many to be in one both.
                let deep = Sweep { sizes: values("64..64K*4"), depths: values("32"), ..sweep.clone() };
                Campaign {
                    engines: names(&["real", BLUEFIELD3, DSA]),
                    repetitions: 480,
                    passes: 160,
                    precision: 0.025,
                    limit: Some(28.0),
                    seconds: SLICE,
                    warm_up: 0.96,
                    sweeps: vec![
                        of(&alone, &["real"], &hot_and_cold),
                        of(&deep, &["real"], &hot_and_cold),
                        of(&alone, &[BLUEFIELD3, DSA], &[Footprint::Cold]),
                        of(&deep, &[BLUEFIELD3, DSA], &[Footprint::Cold]),
                    ],
                    ..base
                }
            }
            Self::Full => {
                let all = names(&["real", "sim:profile=bluefield2", BLUEFIELD3, "sim:profile=ioat", DSA]);
                let footprints = vec![Footprint::Hot, Footprint::Cold, Footprint::Random];
                let directions = vec![Direction::Push, Direction::Pull];
                Campaign {
                    engines: all,
                    repetitions: 30,
                    seconds: SLICE,
                    published: true,
                    sweeps: vec![
                        Sweep {
                            ops: vec![Op::Copy, Op::Fill, Op::Sg],
                            sizes: values("64..16M*4"),
                            depths: values("1,8,64"),
                            footprints,
                            ..real.clone()
                        },
                        Sweep { sizes: values("4K,64K,1M"), queues: values("2"), ..real },
                        Sweep {
                            sizes: values("64..2M*4"),
                            depths: values("1,8,64"),
                            ..models(&[DSA, "sim:profile=ioat"])
                        },
                        Sweep {
                            sizes: values("64..2M*4"),
                            depths: values("1,8,64"),
                            directions,
                            ..models(&["sim:profile=bluefield2", BLUEFIELD3])
                        },
                    ],
                    ..base
                }
            }
            Self::Latency => Campaign {
                engines: names(&["real", BLUEFIELD3, DSA]),
                repetitions: 60,
                seconds: SLICE,
                sweeps: vec![
                    Sweep {
                        sizes: values("64..1M*4"),
                        depths: values("1"),
                        footprints: hot_and_cold,
                        ..real
                    },
                    Sweep { sizes: values("64..1M*4"), depths: values("1"), ..models(&[BLUEFIELD3, DSA]) },
                ],
                ..base
            },
            Self::Knee => Campaign {
                engines: names(&["real", BLUEFIELD3, DSA]),
                repetitions: 30,
                seconds: SLICE,
                published: true,
                sweeps: vec![
                    Sweep {
                        sizes: values("64,4K,64K,1M"),
                        depths: values("1..256"),
                        batches: Some(values("1")),
                        ..real
                    },
                    Sweep {
                        sizes: values("64,1K,4K,16K,64K,256K,1M"),
                        depths: values("1..256"),
                        batches: Some(values("1")),
                        directions: vec![Direction::Push, Direction::Pull],
                        ..models(&[BLUEFIELD3])
                    },
                    Sweep {
                        sizes: values("64,4K,64K,1M"),
                        depths: values("1..128"),
                        batches: Some(values("1")),
                        ..models(&[DSA])
                    },
                ],
                ..base
            },
            Self::Crossover => {
                let sizes = values("64..1M");
                let one = Sweep { depths: values("1"), sizes: sizes.clone(), ..sweep.clone() };
                let batched =
                    Sweep { depths: values("128"), batches: Some(values("32")), sizes, ..sweep.clone() };
                Campaign {
                    engines: names(&["real", DSA]),
                    repetitions: 60,
                    seconds: SLICE,
                    sweeps: vec![
                        of(&one, &["real"], &hot_and_cold),
                        of(&batched, &["real"], &hot_and_cold),
                        of(&one, &[DSA], &[Footprint::Cold]),
                        of(&batched, &[DSA], &[Footprint::Cold]),
                    ],
                    ..base
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_sound_campaign() {
        for preset in Preset::value_variants() {
            let campaign = preset.campaign();
            campaign.check().unwrap_or_else(|e| panic!("{preset:?}: {e}"));
            let text = toml::to_string(&campaign).unwrap();
            assert_eq!(Campaign::from_toml(&text).unwrap(), campaign, "{preset:?} as a file");
        }
    }
}
