//! Numbered tags of the file: makes an enum with conversions from a table of variants, numbers and names.

/// Declares numbered tags, their names and both conversions in one table.
macro_rules! tags {
    ($(#[$meta:meta])* $name:ident: $int:ty {
        $($(#[$doc:meta])* $variant:ident = $number:literal $text:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr($int)]
        pub enum $name { $($(#[$doc])* $variant = $number,)* }

        impl $name {
            /// Every tag of the kind, in the order of format-spec.md.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The tag with this number.
            pub fn from_number(number: $int) -> Option<Self> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }

            /// The number in the file.
            pub fn number(self) -> $int {
                self as $int
            }

            /// The name used in format-spec.md and in messages.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}
pub(crate) use tags;
