//! Options of wrappers in configuration files.

use std::path::PathBuf;

use dma_core::configuration;
use dma_core::configuration::Bytes;

use crate::meter::MeterOptions;
use crate::record::RecordOptions;
use crate::verify::VerifyOptions;

configuration! {
    VerifyOptions, "options of verified copies", VerifyOptions::new(), requires [],
    sample: u64, "Copies of a queue for each one that is verified; at least 1.";
    sample_bytes: Bytes, "Bytes of a queue for each copy that is verified; at least 1.";
}

configuration! {
    MeterOptions, "options of a meter", MeterOptions::new(), requires [],
    label: String, "The engine's name in spans and metrics. Empty: the name of its backend.";
}

configuration! {
    RecordOptions, "options of a recorder", RecordOptions::new(""), requires [file],
    file: PathBuf, "The trace to write.";
    buffer: Bytes, "Buffer of each queue; at least 4K.";
    engine: String, "The name of the recorded engine in the trace. Empty: the name of its backend.";
}

#[cfg(test)]
mod tests {
    use super::*;

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
