//! Times of GPUs.

use dma_sim::model::{ChannelCosts, Costs, Curve, Profile, Reporting, Time};

/// The profiles.
pub(crate) const NAMES: [&str; 2] = ["ideal", "hopper"];

/// Returns the profile of that name.
pub(crate) fn by_name(name: &str) -> Option<Profile> {
    match name {
        "ideal" => Some(Profile::ideal()),
        "hopper" => Some(hopper()),
        _ => None,
    }
}

/// Copy engines of a GPU of the Hopper generation on PCIe 5.0.
///
/// **Measured by others, on several cards:** 52.8 GB/s between GPU and host (H100, `NVIDIA/nvbandwidth` issue
/// 24); 1.1 TB/s within the GPU (H20-3e, `NVIDIA/nvbandwidth` issue 48); 2.3 us for each call of a loop of
/// `cudaMemcpyAsync` (H20, `taco-project/FlexKV` pull request 193); 3.55 us for one copy of 1 byte (H100,
/// `meta-pytorch/torchcomms` pull request 2195); small copies in one batch take half of the time
/// (`llm-d/llm-d-kv-cache` pull request 607).
///
/// **Assumed:** the same rate in both directions, and no jitter.
fn hopper() -> Profile {
    let link = 52_800_000_000;
    let costs = |bytes_per_second| Costs {
        latency: Curve::linear(Time::from_ns(3_550), bytes_per_second),
        engine: Curve::linear(Time::ZERO, bytes_per_second),
        reported: ChannelCosts {
            issue: Curve::flat(Time::from_ns(2_300)),
            contention: Curve::flat(Time::ZERO),
        },
        coalesced: ChannelCosts {
            issue: Curve::flat(Time::from_ns(1_150)),
            contention: Curve::flat(Time::ZERO),
        },
    };
    Profile {
        name: "hopper".into(),
        source: "NVIDIA/nvbandwidth issues 24 and 48, FlexKV 193, torchcomms 2195, llm-d-kv-cache 607".into(),
        in_order: true,
        reporting: Reporting::Each { coalescing: true },
        push: costs(link),
        pull: costs(link),
        local: costs(1_100_000_000_000),
        ..Profile::ideal()
    }
}
