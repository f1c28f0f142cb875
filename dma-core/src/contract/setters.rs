//! [`setters!`]: builder methods that set one field.

/// `with_x(field: T);` defines the builder method `with_x`, which sets a public field. A doc comment before
/// the definition replaces the default doc comment. Instead of `T`, `impl Into<T>` accepts values that
/// convert into it, and `Some(T)` and `Some(impl Into<T>)` set a field of type `Option<T>`. `T => EXPRESSION`
/// sets the field to the expression, and is for all other types, such as types with a destructor.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    () => {};
    ($name:ident($field:ident: $($type:tt)+); $($rest:tt)*) => {
        $crate::setters! {
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            $name($field: $($type)+);
            $($rest)*
        }
    };
    ($(#[$doc:meta])* $name:ident($field:ident: Some(impl Into<$type:ty>)); $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: impl Into<$type>) -> Self {
            self.$field = Some($field.into());
            self
        }
        $crate::setters! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident($field:ident: Some($type:ty)); $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub const fn $name(mut self, $field: $type) -> Self {
            self.$field = Some($field);
            self
        }
        $crate::setters! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident($field:ident: impl Into<$type:ty>); $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: impl Into<$type>) -> Self {
            self.$field = $field.into();
            self
        }
        $crate::setters! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident($field:ident: $type:ty => $value:expr); $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: $type) -> Self {
            self.$field = $value;
            self
        }
        $crate::setters! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident($field:ident: $type:ty); $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub const fn $name(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
        $crate::setters! { $($rest)* }
    };
}
pub(crate) use setters;
