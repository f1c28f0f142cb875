use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::{EngineName, reference::doc_engine};

/// Checks that reading `text` fails with an error that contains `expected`.
fn refused<T: DeserializeOwned + Debug>(text: &str, expected: &str) {
    let error = toml::from_str::<T>(text).expect_err(text).to_string();
    assert!(error.contains(expected), "{text}: {error}");
}

/// Writes and reads a value in two formats.
fn read_back<T: Serialize + DeserializeOwned>(value: &T) -> [T; 2] {
    let text = toml::to_string(value).expect("TOML");
    let json = serde_json::to_string(value).expect("JSON");
    [toml::from_str(&text).expect(&text), serde_json::from_str(&json).expect(&json)]
}

#[test]
fn options_are_written_as_people_write_them() {
    let options = SharedQueueOptions::new().with_lanes(2).with_queue(
        QueueOptions::new()
            .with_depth(64)
            .with_hint(CacheHint::Cold)
            .with_stall_timeout(Duration::from_millis(1500)),
    );
    let text = toml::to_string(&options).expect("TOML");
    assert_eq!(
        text,
        "lanes = 2\ncores = []\n\n[queue]\ndepth = 64\nhint = \"cold\"\nstall_timeout = \"1s 500ms\"\n\
         drop_timeout = \"5s\"\ndoorbell_delay = \"50us\"\n"
    );
    let memory = MemoryRequest::new(1500).with_huge_pages(true).exportable(Access::READ).with_node(Some(1));
    assert_eq!(
        toml::to_string(&memory).expect("TOML"),
        "len = 1500\nalign = \"4K\"\naccess = [\"READ\", \"WRITE\"]\nexport = [\"READ\"]\nhuge_pages = true\n\
         zeroed = true\nnode = 1\nplace = \"host\"\n"
    );
}

#[test]
fn keys_that_are_left_out_have_their_defaults() {
    assert_eq!(toml::from_str::<QueueOptions>("").expect("defaults"), QueueOptions::new());
    assert_eq!(toml::from_str::<SharedQueueOptions>("").expect("defaults"), SharedQueueOptions::new());
    let cache: RegistrationCacheOptions = toml::from_str("entries = 8").expect("a table");
    assert_eq!(cache, RegistrationCacheOptions::new().with_entries(8));
    let request: MemoryRequest = toml::from_str("len = \"1G\"\nplace = \"device\"").expect("a table");
    assert_eq!((request.len, request.align, request.place), (1 << 30, 4096, Place::Device));
    let options: PoolOptions = toml::from_str("classes = [{ len = '4K', count = 3 }]").expect("a table");
    let pool = crate::BufferPool::new(&doc_engine(), &options).expect("a pool");
    assert_eq!(pool.classes().map(|class| (class.len, class.count)).collect::<Vec<_>>(), [(4096, 3)]);
}

#[test]
fn bad_tables_are_refused_with_a_remedy() {
    refused::<QueueOptions>("dept = 3", "queue options have no key `dept`: did you mean `depth`?");
    refused::<QueueOptions>("dept = 3", "line 1, column 1");
    refused::<QueueOptions>("Depth = 3", "did you mean `depth`?");
    refused::<QueueOptions>("x = 3", "there are: depth, hint, stall_timeout");
    refused::<QueueOptions>(
        "hint = 'hott'",
        "no cache hint `hott`: did you mean `hot`? There are: auto, hot",
    );
    refused::<QueueOptions>("stall_timeout = '30'", "such as \"50us\"");
    refused::<QueueOptions>("stall_timeout = 30", "such as \"50us\"");
    refused::<QueueOptions>("stall_timeout = '0s'", "`stall_timeout`: 0s would make every wait fail");
    refused::<QueueOptions>("depth = -1", "-1");
    refused::<SharedQueueOptions>("[queue]\ndepht = 3", "did you mean `depth`?");
    refused::<SharedQueueOptions>("[queue]\ndepht = 3", "line 2, column 1");
    refused::<MemoryRequest>("align = 1", "missing field `len`");
    refused::<MemoryRequest>("len = -1", "a size in bytes, such as 65536");
    refused::<MemoryRequest>("len = '2MB'", "a size in bytes, such as 65536");
    refused::<MemoryRequest>("len = '0'", "`len`: 0 is out of range: from 1 to");
    refused::<MemoryRequest>("place = 'host'\nlen = 0", "line 2, column 7");
    refused::<MemoryRequest>("len = 1\nalign = 48", "`align`: 48 is not a power of two");
    refused::<SharedQueueOptions>("lanes = 0", "`lanes`: 0 is out of range: from 1 to 65535");
    refused::<SharedQueueOptions>("lanes = 65536", "`lanes`: 65536 is out of range: from 1 to 65535");
    refused::<PoolOptions>("classes = []", "`classes`: a pool needs at least one size");
    refused::<PoolOptions>("classes = [{ len = 0, count = 1 }]", "`len`: 0 is out of range");
    refused::<PoolOptions>("classes = [{ len = 1, count = 0 }]", "`count`: 0 is out of range");
    refused::<MemoryRequest>("len = 1\naccess = ['READ', 'RIGHT']", "no right `RIGHT`");
    refused::<MemoryRequest>("len = 1\nplace = 'hots'", "did you mean `host`?");
    refused::<PoolOptions>("", "missing field `classes`");
    refused::<PoolOptions>("classes = [{ len = 1 }]", "missing field `count`");
    refused::<PoolOptions>("classes = [{ len = 1, coun = 2 }]", "did you mean `count`?");
    let twice = serde_json::from_str::<QueueOptions>(r#"{"depth": 1, "depth": 2}"#).expect_err("twice");
    assert!(twice.to_string().contains("duplicate field `depth`"), "{twice}");
    let name = serde_json::from_str::<EngineName>(r#""sim:seed=1,seed=2""#).expect_err("twice");
    assert!(name.to_string().contains("`seed` is given twice"), "{name}");
}

fn times() -> impl Strategy<Value = Duration> {
    (0..1_000_000_u64, 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos))
}

proptest! {
    #[test]
    fn sizes_and_durations_are_read_as_they_were_written(bytes: u64, shift in 0..63_u32, time in times()) {
        for bytes in [bytes >> 1, (bytes >> 1 >> shift) << shift] {
            let json = serde_json::to_string(&Bytes(bytes)).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).expect("a size").0, bytes, "{}", json);
        }
        let json = serde_json::to_string(&Time(time)).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Time>(&json).expect("a duration").0, time, "{}", json);
    }

    #[test]
    fn options_are_read_as_they_were_written(
        (depth, lanes, cores) in (0..1_usize << 40, 1..1_usize << 16, proptest::collection::vec(0..999_usize, 0..3)),
        (stall, drop, delay) in (times(), times(), times()),
        (len, node, rights) in (1..1_usize << 60, proptest::option::of(0..9_u32), 0..4_u32),
    ) {
        let queue = QueueOptions::new()
            .with_depth(depth)
            .with_hint([CacheHint::Auto, CacheHint::Hot, CacheHint::Cold][depth % 3])
            .with_stall_timeout(stall.max(Duration::from_nanos(1)))
            .with_drop_timeout(drop)
            .with_doorbell_delay(delay);
        let options = SharedQueueOptions::new().with_lanes(lanes).with_queue(queue).with_cores(cores);
        for read in read_back(&options) {
            prop_assert_eq!(&read, &options);
        }
        let rights = Access::from_bits_truncate(rights);
        let request = MemoryRequest::new(len)
            .with_align(1 << (lanes % 60))
            .with_access(rights)
            .exportable(!rights)
            .with_huge_pages(lanes % 2 == 1)
            .with_node(node)
            .with_place(Place::ALL[depth % 2]);
        for read in read_back(&request) {
            prop_assert_eq!(format!("{read:?}"), format!("{request:?}"));
        }
        let pool = PoolOptions::new().with_class(len, lanes).exportable(rights).with_node(node);
        for read in read_back(&pool) {
            prop_assert_eq!(format!("{read:?}"), format!("{pool:?}"));
        }
    }
}

#[cfg(feature = "schemars")]
#[test]
fn schemas_have_the_keys_their_descriptions_and_defaults() {
    let schema = serde_json::to_value(schemars::schema_for!(SharedQueueOptions)).expect("JSON");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["lanes"]["default"], 1);
    let queue = &schema["$defs"]["QueueOptions"]["properties"];
    assert_eq!(queue["stall_timeout"]["default"], "30s");
    let description = queue["depth"]["description"].as_str().expect("text");
    assert!(description.starts_with("Maximum number of operations in flight"), "{description}");
    let schema = serde_json::to_value(schemars::schema_for!(PoolOptions)).expect("JSON");
    assert_eq!(schema["required"], serde_json::json!(["classes"]));
    assert!(schema["$defs"]["ClassOptions"]["properties"]["len"]["type"].is_array(), "{schema:#}");
}
