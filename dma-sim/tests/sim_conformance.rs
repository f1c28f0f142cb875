//! Runs the conformance suite on the simulator: every profile, several seeds, and every clock that needs
//! no calls to advance.

use dma_core::DmaEngine;
use dma_sim::model::{Curve, Profile, Time};
use dma_sim::sim::{Clock, SimEngine, SimOptions};

fn engine(profile: Profile, seed: u64) -> SimEngine {
    SimEngine::open(&SimOptions::new().with_profile(profile).with_seed(seed)).unwrap()
}

dma_conformance::conformance_tests!(ideal, engine(Profile::ideal(), 1));
dma_conformance::conformance_tests!(bluefield2, engine(Profile::bluefield2(), 2));
dma_conformance::conformance_tests!(bluefield3, engine(Profile::bluefield3(), 3));
dma_conformance::conformance_tests!(ioat, engine(Profile::ioat(), 4));
dma_conformance::conformance_tests!(dsa, engine(Profile::dsa(), 5));
dma_conformance::conformance_tests!(timeless, engine(Profile::ideal().timeless(), 11));
dma_conformance::conformance_tests!(
    timeless_in_real_time,
    SimEngine::open(
        &SimOptions::new().with_profile(Profile::bluefield3().timeless()).with_clock(Clock::Real)
    )
    .unwrap()
);
dma_conformance::conformance_tests!(boxed, Box::new(engine(Profile::bluefield3(), 6)) as Box<dyn DmaEngine>);
dma_conformance::conformance_tests!(
    arced,
    std::sync::Arc::new(engine(Profile::ioat(), 7)) as std::sync::Arc<dyn DmaEngine>
);

// Opens a device with memory of its own. The suite then runs every case a second time, in that memory.
fn with_memory(name: &str) -> SimEngine {
    SimEngine::open(&SimOptions::from_name(&name.parse().unwrap()).unwrap()).unwrap()
}

dma_conformance::conformance_tests!(memory_of_ideal, with_memory("sim:device_memory=1G,seed=12"));
dma_conformance::conformance_tests!(
    memory_of_bluefield3,
    with_memory("sim:profile=bluefield3,device_memory=1G,seed=13")
);
dma_conformance::conformance_tests!(
    memory_of_tight,
    with_memory("sim:profile=dsa,max_transfer=100,max_segments=2,depth=2,device_memory=1G,seed=14")
);

// A device on the computer's clock, with a latency that is long enough for sleepers to sleep.
dma_conformance::conformance_tests!(real_time, {
    let mut profile = Profile::bluefield3();
    for direction in dma_sim::model::Direction::ALL {
        profile.costs_mut(direction).latency = Curve::linear(Time::from_us(30), 10_000_000_000);
    }
    SimEngine::open(&SimOptions::new().with_profile(profile).with_clock(Clock::Real).with_seed(8)).unwrap()
});

// A device with the tightest limits.
dma_conformance::conformance_tests!(tight, {
    let mut options = SimOptions::new().with_seed(9);
    options.profile = Profile::bluefield2();
    (options.max_transfer, options.max_segments, options.depth) = (Some(100), Some(2), Some(2));
    SimEngine::open(&options).unwrap()
});

dma_conformance::conformance_tests!(coalescing, {
    let mut options = SimOptions::new().with_profile(Profile::bluefield3()).with_seed(10);
    options.coalesce = true;
    SimEngine::open(&options).unwrap()
});

#[test]
fn any_seed_conforms() {
    for profile in Profile::NAMES {
        for seed in 100..104 {
            println!("profile {profile}, seed {seed}");
            dma_conformance::run_all(&engine(Profile::by_name(profile).unwrap(), seed));
        }
    }
}
