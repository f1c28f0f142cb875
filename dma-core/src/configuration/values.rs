//! Values in configuration files: sizes and durations as people write them, and words.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::{Access, CacheHint, EngineName, Place, configuration_words, parse_size};

/// A size: a whole number of bytes, or text such as `64K`, `2M` and `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl From<u64> for Bytes {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> Self {
        bytes.0
    }
}

impl From<usize> for Bytes {
    fn from(bytes: usize) -> Self {
        Self(bytes as u64)
    }
}

impl From<Bytes> for usize {
    /// A size beyond the address space becomes `usize::MAX`, which no engine allocates.
    fn from(bytes: Bytes) -> Self {
        Self::try_from(bytes.0).unwrap_or(Self::MAX)
    }
}

impl Serialize for Bytes {
    /// Writes the size in the largest unit that divides it, as a text such as `64K`. If no unit divides it,
    /// writes the number of bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        match units.iter().find(|(bits, _)| self.0 > 0 && self.0.trailing_zeros() >= *bits) {
            Some((bits, unit)) => serializer.collect_str(&format_args!("{}{unit}", self.0 >> bits)),
            None => serializer.serialize_u64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;

        impl Visitor<'_> for Size {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size in bytes, such as 65536, \"64K\", \"2M\" or \"1GiB\"")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Bytes, E> {
                let refused = || E::invalid_value(serde::de::Unexpected::Signed(bytes), &self);
                bytes.try_into().map(Bytes).map_err(|_| refused())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                let refused = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                parse_size(text).map(Bytes).ok_or_else(refused)
            }
        }

        deserializer.deserialize_any(Size)
    }
}

/// A duration, as text such as `50us`, `2s` and `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl From<Duration> for Time {
    fn from(time: Duration) -> Self {
        Self(time)
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, such as \"50us\", \"2s\" or \"1m 30s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                let refused = |_| E::invalid_value(serde::de::Unexpected::Str(text), &self);
                humantime::parse_duration(text).map(Time).map_err(refused)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

configuration_words!(CacheHint, "cache hint": "auto" => Self::Auto, "hot" => Self::Hot, "cold" => Self::Cold);
configuration_words!(Place, "place": "host" => Self::Host, "device" => Self::Device);
configuration_words!(Right, "right": "READ" => Self(Access::READ), "WRITE" => Self(Access::WRITE));

/// One right of [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Right(Access);

impl Serialize for Access {
    /// Writes a list of names: `READ`, `WRITE`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter_names().map(|(name, _)| name))
    }
}

impl<'de> Deserialize<'de> for Access {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Right>::deserialize(deserializer)?.into_iter().map(|right| right.0).collect())
    }
}

impl Serialize for EngineName {
    /// Writes the name as text, such as `cpu:threads=2`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EngineName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(feature = "schemars")]
mod schemas {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Access, Bytes, EngineName, Right, Time};

    /// Implements schemas that are inlined into the schemas that use them.
    macro_rules! inline_schema {
        ($type:ident, $name:literal, $generator:ident => $schema:expr) => {
            impl JsonSchema for $type {
                fn schema_name() -> Cow<'static, str> {
                    $name.into()
                }

                fn inline_schema() -> bool {
                    true
                }

                fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                    $schema
                }
            }
        };
    }

    inline_schema!(Bytes, "Bytes", _generator => json_schema!({
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": "^[0-9]+ *([kK]|[mM]|[gG]|[kK][iI][bB]|[mM][iI][bB]|[gG][iI][bB])?$",
        "examples": [65536, "64K", "2M", "1GiB"],
    }));
    inline_schema!(Time, "Time", _generator => json_schema!({
        "type": "string",
        "examples": ["50us", "2s", "1m 30s"],
    }));
    inline_schema!(EngineName, "EngineName", _generator => json_schema!({
        "type": "string",
        "description": "An engine: BACKEND[:DEVICE][,KEY=VALUE...].",
        "examples": ["auto", "cpu:threads=2", "doca:03:00.0,depth=64"],
    }));
    inline_schema!(Access, "Access", generator => Vec::<Right>::json_schema(generator));
}
