//! [`setters!`]: builder methods that set one field.

/// Defines `const fn with_x(mut self, x: T) -> Self` for each `with_x(field: T);`.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($field:ident: $type:ty);)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub const fn $name(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )+};
}
pub(crate) use setters;
