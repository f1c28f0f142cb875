//! Options in configuration files of self-describing formats, such as TOML and JSON. Each options type is a
//! table of keys. A key that is left out has its default value.

#[cfg(test)]
mod tests;
mod values;

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Visitor};

#[cfg(feature = "schemars")]
pub use schemars;
pub use serde;
#[cfg(feature = "schemars")]
pub use serde_json;
pub use values::{Bytes, Time};

use crate::memory::ClassOptions;
use crate::{
    Access, CacheHint, MemoryRequest, Place, PoolOptions, QueueOptions, RegistrationCacheOptions,
    SharedQueueOptions, closest_name,
};

/// Reads a key and returns its position in `known`.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name of the table in errors.
    pub table: &'static str,
    /// The valid keys.
    pub known: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key of {}", self.table)
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<usize, E> {
        self.known.iter().position(|known| *known == key).ok_or_else(|| {
            E::custom(format_args!("{} have no key `{key}`: {}", self.table, remedy(key, self.known)))
        })
    }
}

/// Reads a value and checks it, so that an error names the key and its place in the file.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Checked<V> {
    pub key: &'static str,
    pub check: fn(&V) -> Result<(), String>,
}

impl<'de, V: Deserialize<'de>> DeserializeSeed<'de> for Checked<V> {
    type Value = V;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V, D::Error> {
        let value = V::deserialize(deserializer)?;
        let refused = |e| serde::de::Error::custom(format_args!("`{}`: {e}", self.key));
        (self.check)(&value).map_err(refused).map(|()| value)
    }
}

/// Calls `check`, whose argument's type the compiler then knows.
#[doc(hidden)]
pub fn check<V>(value: &V, check: impl FnOnce(&V) -> Result<(), String>) -> Result<(), String> {
    check(value)
}

/// Returns an error if `value` is not in `range`.
#[doc(hidden)]
pub fn in_range(value: u64, range: RangeInclusive<u64>) -> Result<(), String> {
    let (first, last) = (range.start(), range.end());
    match range.contains(&value) {
        true => Ok(()),
        false if *last == u64::MAX => Err(format!("{value} is too small: the minimum is {first}")),
        false => Err(format!("{value} is out of range: from {first} to {last}")),
    }
}

/// Maximum length of memory, which fits into the address space.
const MAX_LEN: u64 = isize::MAX as u64;

/// Returns a hint that lists the valid words. If a valid word resembles `word`, the hint suggests it first.
#[must_use]
pub fn remedy(word: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    match closest_name(&word.to_ascii_lowercase(), known) {
        Some(close) => format!("did you mean `{close}`? There are: {list}"),
        None => format!("there are: {list}"),
    }
}

/// Reads and writes options as a table. The arguments are `$type`, the type's name in errors, the default
/// value, and the required keys; then for each key, the type that reads and writes the field, the description
/// in the schema, and optionally a function that returns an error for an invalid value.
#[doc(hidden)]
#[macro_export]
macro_rules! configuration {
    (
        $type:ident, $table:literal, $start:expr, requires [$($required:ident),*],
        $($field:ident: $value:ty, $description:literal $(, check $check:expr)?;)+
    ) => {
        const _: () = {
            use $crate::configuration::serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
            use $crate::configuration::serde::ser::{Serialize, SerializeStruct, Serializer};

            const KEYS: &[&str] = &[$(stringify!($field)),+];
            const REQUIRED: &[&str] = &[$(stringify!($required)),*];

            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let mut table = serializer.serialize_struct(stringify!($type), KEYS.len())?;
                    $(table.serialize_field(
                        stringify!($field),
                        &<$value>::from(self.$field.clone()),
                    )?;)+
                    table.end()
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Table;

                    impl<'de> Visitor<'de> for Table {
                        type Value = $type;

                        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                            f.write_str(concat!("a table of ", $table))
                        }

                        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$type, A::Error> {
                            let mut read = $start;
                            let mut seen = [false; KEYS.len()];
                            let key = $crate::configuration::Key { table: $table, known: KEYS };
                            while let Some(at) = map.next_key_seed(key)? {
                                if std::mem::replace(&mut seen[at], true) {
                                    return Err(A::Error::duplicate_field(KEYS[at]));
                                }
                                $(if KEYS[at] == stringify!($field) {
                                    let value = $crate::configuration::Checked::<$value> {
                                        key: KEYS[at],
                                        check: |_value| {
                                            $($crate::configuration::check(_value, $check)?;)?
                                            Ok(())
                                        },
                                    };
                                    read.$field = map.next_value_seed(value)?.into();
                                })+
                            }
                            for (key, seen) in KEYS.iter().zip(seen) {
                                if !seen && REQUIRED.contains(key) {
                                    return Err(A::Error::missing_field(key));
                                }
                            }
                            Ok(read)
                        }
                    }

                    deserializer.deserialize_struct(stringify!($type), KEYS, Table)
                }
            }

            #[cfg(feature = "schemars")]
            impl $crate::configuration::schemars::JsonSchema for $type {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    stringify!($type).into()
                }

                fn json_schema(
                    generator: &mut $crate::configuration::schemars::SchemaGenerator,
                ) -> $crate::configuration::schemars::Schema {
                    use $crate::configuration::serde_json::{Map, Value, json, to_value};

                    let start: $type = $start;
                    let mut properties = Map::new();
                    $({
                        let mut property: Map<String, Value> =
                            generator.subschema_for::<$value>().as_object().cloned().unwrap_or_default();
                        property.insert("description".to_owned(), json!($description));
                        if !REQUIRED.contains(&stringify!($field)) {
                            let default = to_value(<$value>::from(start.$field.clone()));
                            property.insert("default".to_owned(), default.unwrap_or_default());
                        }
                        properties.insert(stringify!($field).to_owned(), property.into());
                    })+
                    $crate::configuration::schemars::json_schema!({
                        "type": "object",
                        "properties": properties,
                        "required": REQUIRED,
                        "additionalProperties": false,
                    })
                }
            }
        };
    };
}

/// Reads and writes a type as words. The arguments are the type's name in errors, and each word with its
/// value.
#[doc(hidden)]
#[macro_export]
macro_rules! configuration_words {
    ($type:ident, $what:literal: $($word:literal => $value:expr),+) => {
        const _: () = {
            use $crate::configuration::serde::{de, ser};

            impl ser::Serialize for $type {
                fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let word = [$(($word, $value)),+].into_iter().find(|(_, value)| value == self);
                    match word {
                        Some((word, _)) => serializer.serialize_str(word),
                        None => Err(ser::Error::custom(format_args!("{self:?} cannot be written: it has no word in configuration files"))),
                    }
                }
            }

            impl<'de> de::Deserialize<'de> for $type {
                fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let read = <String as de::Deserialize>::deserialize(deserializer)?;
                    let found = [$(($word, $value)),+].into_iter().find(|(word, _)| *word == read);
                    found.map(|(_, value)| value).ok_or_else(|| {
                        let remedy = $crate::configuration::remedy(&read, &[$($word),+]);
                        de::Error::custom(format_args!("no {} `{read}`: {remedy}", $what))
                    })
                }
            }

            #[cfg(feature = "schemars")]
            impl $crate::configuration::schemars::JsonSchema for $type {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    stringify!($type).into()
                }

                fn json_schema(
                    _: &mut $crate::configuration::schemars::SchemaGenerator,
                ) -> $crate::configuration::schemars::Schema {
                    $crate::configuration::schemars::json_schema!({ "type": "string", "enum": [$($word),+] })
                }
            }
        };
    };
}

configuration! {
    QueueOptions, "queue options", QueueOptions::new(), requires [],
    depth: usize, "Maximum number of operations in flight. 0: the engine's default.";
    hint: CacheHint, "Hint: whether the data is in the CPU's caches.";
    stall_timeout: Time, "Time after which a device that completes nothing counts as stalled; more than 0s.",
        check |time| match time.0.is_zero() {
            true => Err("0s would make every wait fail: give the time after which a device that completes \
                         nothing counts as stalled, such as \"30s\"".to_owned()),
            false => Ok(()),
        };
    drop_timeout: Time, "Maximum time that dropping the queue waits for operations in flight.";
    doorbell_delay: Time, "Maximum time that an awaited operation waits for others to share a doorbell.";
}

configuration! {
    SharedQueueOptions, "shared queue options", SharedQueueOptions::new(), requires [],
    lanes: usize, "Number of device queues, each with its own thread: 1 to 65535.",
        check |lanes| in_range(*lanes as u64, 1..=u16::MAX.into());
    queue: QueueOptions, "Options of each device queue. `depth` is the depth of one device queue.";
    cores: Vec<usize>, "The cores that the lanes' threads may run on. Empty: all.";
}

configuration! {
    MemoryRequest, "memory options", MemoryRequest::new(0), requires [len],
    len: Bytes, "Length.", check |len| in_range(len.0, 1..=MAX_LEN);
    align: Bytes, "Alignment of the first byte, a power of two.",
        check |align| match align.0.is_power_of_two() {
            true => Ok(()),
            false => Err(format!("{} is not a power of two", align.0)),
        };
    access: Access, "Rights of the local device.";
    export: Access, "The rights that an export may grant at most.";
    huge_pages: bool, "Prefers huge pages.";
    zeroed: bool, "Clears memory that was in use before.";
    node: Option<u32>, "The NUMA node to allocate on. Left out: the system chooses.";
    place: Place, "The place to allocate in.";
}

configuration! {
    PoolOptions, "pool options", PoolOptions::new(), requires [classes],
    classes: Vec<ClassOptions>, "The size classes: length and number of buffers.",
        check |classes| match classes.is_empty() {
            true => Err("a pool needs at least one size".to_owned()),
            false => Ok(()),
        };
    export: Access, "The rights that exports of the buffers may grant at most.";
    node: Option<u32>, "The NUMA node to allocate on. Left out: the system chooses.";
    label: String, "The pool's name in metrics and warnings. Empty: its number in the process.";
    wait_warning: Time, "A warning is logged when waiting for a buffer takes longer than this. 0s: no warning.";
}

configuration! {
    ClassOptions, "pool classes", ClassOptions { len: 0, count: 0, max: 0 }, requires [len, count],
    len: Bytes, "Length of each buffer.", check |len| in_range(len.0, 1..=MAX_LEN);
    count: usize, "Initial number of buffers.", check |count| in_range(*count as u64, 1..=MAX_LEN);
    max: usize, "Number of buffers that the pool may grow to. 0: it does not grow.";
}

configuration! {
    RegistrationCacheOptions, "registration cache options", RegistrationCacheOptions::new(), requires [],
    entries: usize, "Maximum number of registrations that are kept. 0: none.";
    bytes: Bytes, "Maximum amount of memory that is kept registered.";
}
