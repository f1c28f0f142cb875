//! [`options!`](crate::options): the options of an engine, in one table.

/// Declares an engine's options: a struct, and the way in which engine names set its fields.
///
/// An entry has up to four parts:
///
/// 1. The documentation of the field, its name and its type, and its default (`= VALUE`) if that is not the
///    default of the type.
/// 2. The setter with its argument: `(T)`, or `(Some(T))` if the field is an `Option<T>`. `impl Into<T>` in
///    place of `T` accepts values that convert. `(T => EXPRESSION)` sets the field to the expression, for all
///    other types, such as types with a destructor.
/// 3. Optionally, the option of engine names: its key, its value, its effect in one line, and its default as
///    a text. With `needs trust`, untrusted names must not contain it
///    ([`OptionInfo::needs_trust`](crate::OptionInfo::needs_trust)). The value is one of `number(RANGE)`,
///    `size(RANGE)`, `choice("WORD" => VALUE, ...)`, `path("FORMAT")`, `text("FORMAT")` and
///    `read("FORMAT", FUNCTION)`. Each calls the method of [`OptionValue`](crate::OptionValue) with this
///    name.
/// 4. Optionally, `serde`: the type that reads and writes the field in configuration files, its description
///    in the schema, and `check` with a function that returns an error for an invalid value.
///
/// After the struct, `names` has the backend's name. If its engine names have a device, `device` has the
/// field, the function that parses it, and its description. `serde` has the name of the table in errors of
/// configuration files.
///
/// The struct gets `new` and [`Default`], the setters, the constants `INFO` and `NAME_FORMAT`, and
/// `from_name`. The documentation of a field is also that of its setter.
///
/// ```
/// dma_core::options! {
///     /// The device to open.
///     #[derive(Debug)]
///     pub struct MyOptions {
///         /// The device's PCI address. Default: the first device.
///         pub address: Option<dma_core::PciAddress>, with_address(Some(dma_core::PciAddress));
///         /// Maximum depth of a queue, in descriptors: 1 to 1024. Default: 64.
///         pub depth: usize = 64, with_depth(usize),
///             "depth": number(1..=1024), "maximum queue depth, in descriptors", default "64";
///     }
///     names "mine", device address = str::parse, "a PCI address; without one, the first device";
/// }
///
/// let options = MyOptions::from_name(&"mine:03:00.0,depth=8".parse()?)?;
/// assert_eq!((options.address.map(|address| address.bus), options.depth), (Some(3), 8));
/// let error = MyOptions::from_name(&"mine:depth=5000".parse()?).unwrap_err();
/// assert!(error.to_string().contains("from 1 to 1024"));
/// assert_eq!(MyOptions::new().with_depth(8).depth, 8);
/// assert_eq!((MyOptions::NAME_FORMAT.backend, MyOptions::INFO[0].value), ("mine", "N"));
/// # Ok::<(), dma_core::Error>(())
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        $public:vis struct $type:ident {
            $(
                $(#[$doc:meta])*
                $visible:vis $field:ident: $field_type:ty $(= $default:expr)?, $setter:ident $argument:tt
                $(
                    , $key:literal: $read:ident $values:tt, $about:literal, default $text:literal
                    $(, needs $trust:ident)?
                )?
                $(, serde $value:ty, $description:literal $(, check $check:expr)?)?;
            )+
        }
        names $backend:expr $(, device $device:ident = $parse:expr, $device_about:literal)?;
        $(serde $table:literal;)?
    ) => {
        $(#[$meta])*
        #[non_exhaustive]
        $public struct $type {
            $($(#[$doc])* $visible $field: $field_type,)+
        }

        impl Default for $type {
            fn default() -> Self {
                Self { $($field: $crate::options!(@default $($default)?),)+ }
            }
        }

        impl $type {
            /// The options that engine names can have.
            pub const INFO: &'static [$crate::OptionInfo] = &[$($($crate::options!(@info
                $crate::OptionInfo::new($key, $crate::options!(@format $read $values), $text, $about)
                $(, $trust)?
            ),)?)+];

            /// The format of engine names.
            pub const NAME_FORMAT: $crate::NameFormat =
                $crate::NameFormat::new($backend, Self::INFO)$(.with_device($device_about))?;

            /// Returns the defaults.
            #[must_use]
            pub fn new() -> Self {
                Self::default()
            }

            /// Reads an engine name: see [`NAME_FORMAT`](Self::NAME_FORMAT) and [`INFO`](Self::INFO).
            ///
            /// # Errors
            ///
            /// `InvalidArgument` for a device, option or value that does not exist, `OutOfRange` for a number
            /// that is not allowed. Each error lists the valid values.
            pub fn from_name(name: &$crate::EngineName) -> $crate::Result<Self> {
                let mut options = Self::new();
                $(
                    let device: Option<$crate::Result<_>> = name.device().map($parse);
                    options.$device = device.transpose().map_err(|e| e.with_backend($backend))?;
                )?
                name.read_options(Self::NAME_FORMAT, |key, value| {
                    match key {
                        $($($key => {
                            let read = $crate::options!(@read $read value $values)?;
                            options.$field = $crate::options!(@field read $argument);
                        })?)+
                        _ => return Err(value.not_read()),
                    }
                    Ok(())
                })?;
                Ok(options)
            }

            $($crate::options! { @setter [$(#[$doc])*] $setter $field $argument })+
        }

        $crate::options! {
            @serde $type $($table)?; $($($field: $value, $description $(, check $check)?;)?)+
        }
    };

    (@default) => { Default::default() };
    (@default $default:expr) => { $default };

    (@info $info:expr) => { $info };
    (@info $info:expr, trust) => { $info.needing_trust() };

    (@format number $range:tt) => { "N" };
    (@format size $range:tt) => { "BYTES" };
    (@format choice ($first:literal => $_:expr $(, $word:literal => $value:expr)*)) => {
        concat!($first $(, "|", $word)*)
    };
    (@format $read:ident ($format:literal $(, $parse:expr)?)) => { $format };

    (@read number $value:ident ($range:expr)) => { $value.number($range) };
    (@read size $value:ident ($range:expr)) => { $value.size($range) };
    (@read choice $value:ident ($($word:literal => $choice:expr),+)) => {
        $value.choice(&[$(($word, $choice)),+])
    };
    (@read path $value:ident ($format:literal)) => { $value.path() };
    (@read text $value:ident ($format:literal)) => { $value.text().map(str::to_owned) };
    (@read read $value:ident ($format:literal, $parse:expr)) => { $value.read($parse) };

    (@field $read:ident (Some $type:tt)) => { Some($read) };
    (@field $read:ident $argument:tt) => { $read };

    (@setter [$($doc:tt)*] $setter:ident $field:ident ($($argument:tt)+)) => {
        $crate::setters! {
            #[doc = concat!("Sets `", stringify!($field), "`.\n")]
            $($doc)*
            $setter($field: $($argument)+);
        }
    };

    (@serde $type:ident;) => {};
    (@serde $type:ident $table:literal; $($entries:tt)+) => {
        #[cfg(feature = "serde")]
        $crate::configuration! { $type, $table, $type::new(), requires [], $($entries)+ }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes the methods of a public type")]
mod tests {
    use std::path::PathBuf;

    use crate::{Error, ErrorKind, PciAddress, Result};

    crate::options! {
        /// One option of each type of value, and each form of setter.
        #[derive(Debug, PartialEq)]
        struct Every {
            address: Option<PciAddress>, with_address(Some(PciAddress));
            number: u8 = 5, with_number(u8), "number": number(1..=9), "a number", default "5";
            size: Option<u64>, with_size(Some(u64)), "size": size(64..=1 << 20), "a size", default "none";
            word: bool = true, with_word(bool),
                "word": choice("on" => true, "off" => false), "a word", default "on";
            path: Option<PathBuf>, with_path(Some(impl Into<PathBuf>)),
                "path": path("FOLDER"), "a path", default "none", needs trust;
            text: String, with_text(impl Into<String>), "text": text("NAME"), "a text", default "empty";
            list: Vec<u8>, with_list(impl IntoIterator<Item = u8> => list.into_iter().collect()),
                "list": read("N[+N...]", numbers), "a list", default "empty";
        }
        names "every", device address = str::parse, "a PCI address";
    }

    fn numbers(text: &str) -> std::result::Result<Vec<u8>, std::num::ParseIntError> {
        text.split('+').map(str::parse).collect()
    }

    fn read(name: &str) -> Result<Every> {
        Every::from_name(&name.parse()?)
    }

    #[test]
    fn names_and_setters_set_the_same_fields() {
        let defaults = Every {
            address: None,
            number: 5,
            size: None,
            word: true,
            path: None,
            text: String::new(),
            list: vec![],
        };
        assert_eq!((Every::new(), read("every").unwrap()), (defaults, Every::new()));
        let set = Every::new()
            .with_address("03:00.0".parse().unwrap())
            .with_number(9)
            .with_size(1 << 10)
            .with_word(false)
            .with_path("/x")
            .with_text("p0")
            .with_list([1, 2]);
        assert_eq!(read("every:03:00.0,number=9,size=1K,word=off,path=/x,text=p0,list=1+2").unwrap(), set);
    }

    #[test]
    fn the_format_lists_the_options_that_names_can_have() {
        let format = Every::NAME_FORMAT;
        assert_eq!(
            (format.backend, format.device, format.options),
            ("every", Some("a PCI address"), Every::INFO)
        );
        let info = Every::INFO.iter().map(|info| (info.key, info.value, info.default, info.needs_trust));
        let expected = [
            ("number", "N", "5", false),
            ("size", "BYTES", "none", false),
            ("word", "on|off", "on", false),
            ("path", "FOLDER", "none", true),
            ("text", "NAME", "empty", false),
            ("list", "N[+N...]", "empty", false),
        ];
        assert!(info.eq(expected), "{:?}", Every::INFO);
    }

    #[test]
    fn errors_name_the_backend_and_the_valid_values() {
        let refused = |name: &str, kind: ErrorKind, says: &str| {
            let error: Error = read(name).expect_err(name);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("every") && error.hint().contains(says), "{error}");
        };
        refused("every:3", ErrorKind::InvalidArgument, "DDDD:BB:DD.F");
        refused("every:address=03:00.0", ErrorKind::InvalidArgument, "there are: number, size");
        refused("every:number=10", ErrorKind::OutOfRange, "from 1 to 9");
        refused("every:size=1", ErrorKind::OutOfRange, "from 64 to 1048576");
        refused("every:word=yes", ErrorKind::InvalidArgument, "on, off");
        refused("every:list=x", ErrorKind::InvalidArgument, "invalid digit");
    }
}
