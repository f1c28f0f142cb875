//! Options of recorders, of `auto` and of replays in configuration files.

use std::path::PathBuf;

use dma_core::configuration::serde::{Deserialize, Deserializer, Serialize, Serializer};
use dma_core::configuration::{Bytes, Time, in_range};
use dma_core::{configuration, configuration_words};

use crate::auto::{AutoOptions, Prefer};
use crate::record::RecordOptions;
use crate::replay::ReplayOptions;

configuration! {
    RecordOptions, "options of a recorder", RecordOptions::new(""), requires [file],
    file: PathBuf, "The trace to write.";
    buffer: Bytes, "Buffer of each queue; at least 4K.", check |bytes| in_range(bytes.0, 4096..=u64::MAX);
    engine: String, "The name of the recorded engine in the trace. Empty: the name of its backend.";
}

configuration_words!(Prefer, "preference": "measured" => Self::Measured, "device" => Self::Device);

configuration! {
    AutoOptions, "options of `auto`", AutoOptions::new(), requires [],
    prefer: Prefer, "The way to choose between the engines.";
    stall_timeout: Time, "Time without a completion after which a queue stops using the device.";
}

configuration! {
    ReplayOptions, "options of a replay", ReplayOptions::new(), requires [],
    repetitions: u32, "Number of timed runs; at least 1.",
        check |runs| in_range((*runs).into(), 1..=u64::MAX);
    memory: ByteLimit, "Maximum memory to allocate. Left out: only the system limits it.";
    stall: Time, "Time without a completion after which the engine counts as hanging.";
}

/// A maximum in bytes. The key is omitted if there is no maximum, which the options express as `u64::MAX`.
#[derive(Clone, Copy, Debug)]
struct ByteLimit(Option<Bytes>);

impl From<u64> for ByteLimit {
    fn from(limit: u64) -> Self {
        Self((limit < u64::MAX).then_some(Bytes(limit)))
    }
}

impl From<ByteLimit> for u64 {
    fn from(limit: ByteLimit) -> Self {
        limit.0.map_or(Self::MAX, Self::from)
    }
}

impl Serialize for ByteLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ByteLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self)
    }
}

#[cfg(feature = "schemars")]
impl configuration::schemars::JsonSchema for ByteLimit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteLimit".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(
        generator: &mut configuration::schemars::SchemaGenerator,
    ) -> configuration::schemars::Schema {
        Option::<Bytes>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::MeterOptions;
    use crate::verify::VerifyOptions;

    #[test]
    fn options_of_auto_are_read_as_they_were_written() {
        let auto = AutoOptions::new().with_prefer(Prefer::Device);
        let text = toml::to_string(&auto).expect("TOML");
        assert_eq!(text, "prefer = \"device\"\nstall_timeout = \"400ms\"\n");
        assert_eq!(toml::from_str::<AutoOptions>(&text).expect(&text), auto);
        for (text, expected) in [
            ("prefer = 'devise'", "no preference `devise`: did you mean `device`?"),
            (
                "stal_timeout = '1s'",
                "options of `auto` have no key `stal_timeout`: did you mean `stall_timeout`?",
            ),
        ] {
            let error = toml::from_str::<AutoOptions>(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn options_of_a_replay_are_read_as_they_were_written() {
        let replay = ReplayOptions::new();
        let text = toml::to_string(&replay).expect("TOML");
        assert_eq!(text, "repetitions = 3\nstall = \"10s\"\n");
        assert_eq!(toml::from_str::<ReplayOptions>(&text).expect(&text), replay);
        let replay = replay.with_repetitions(1).with_memory(3 << 30);
        let text = toml::to_string(&replay).expect("TOML");
        assert!(text.contains("memory = \"3G\"\n"), "{text}");
        assert_eq!(toml::from_str::<ReplayOptions>(&text).expect(&text), replay);
        let error = toml::from_str::<ReplayOptions>("memori = 5").expect_err("no key").to_string();
        assert!(error.contains("did you mean `memory`?"), "{error}");
    }

    #[cfg(feature = "schemars")]
    #[test]
    fn schemas_have_the_keys_the_words_and_the_defaults() {
        let schema = configuration::schemars::schema_for!((AutoOptions, ReplayOptions)).to_value();
        let (auto, replay) = (&schema["$defs"]["AutoOptions"], &schema["$defs"]["ReplayOptions"]);
        assert_eq!(auto["properties"]["stall_timeout"]["default"], "400ms");
        assert_eq!(schema["$defs"]["Prefer"]["enum"][1], "device");
        assert_eq!(replay["properties"]["repetitions"]["default"], 3);
        assert!(replay["properties"]["memory"]["default"].is_null());
        assert_eq!(replay["additionalProperties"], false);
    }

    #[test]
    fn options_of_wrappers_are_read_as_they_were_written() {
        let verify = VerifyOptions::new().with_sample(3).with_sample_bytes(1 << 20);
        let text = toml::to_string(&verify).expect("TOML");
        assert_eq!(text, "sample = 3\nsample_bytes = \"1M\"\n");
        assert_eq!(toml::from_str::<VerifyOptions>(&text).expect(&text), verify);
        let meter = MeterOptions::new().with_label("ingest");
        let text = toml::to_string(&meter).expect("TOML");
        assert_eq!(toml::from_str::<MeterOptions>(&text).expect(&text), meter);
        let record = RecordOptions::new("a.trace").with_buffer(5000).with_engine("cpu");
        let text = toml::to_string(&record).expect("TOML");
        assert_eq!(toml::from_str::<RecordOptions>(&text).expect(&text), record);
        for (text, expected) in [("samples = 3", "did you mean `sample`?"), ("sample = '3'", "expected u64")]
        {
            let error = toml::from_str::<VerifyOptions>(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = toml::from_str::<RecordOptions>("").expect_err("no file").to_string();
        assert!(error.contains("missing field `file`"), "{error}");
    }
}
