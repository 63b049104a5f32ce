//! The types that are built in.

use serde::{Deserialize, Serialize};

macro_rules! builtins {
    ($($name:ident $text:literal $bytes:literal $doc:literal;)*) => {
        /// A built-in type of fixed size, or `String`. Capabilities are [`super::CapabilityKind`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Builtin {
            $(#[doc = $doc] #[serde(rename = $text)] $name,)*
        }

        impl Builtin {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in interface files.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Bytes on the wire; 0 for `String`, which has no fixed size.
            #[must_use]
            pub const fn bytes(self) -> u32 {
                match self { $(Self::$name => $bytes,)* }
            }
        }
    };
}

builtins! {
    Uint8 "uint8" 1 "8 bits without sign.";
    Uint16 "uint16" 2 "16 bits without sign.";
    Uint32 "uint32" 4 "32 bits without sign.";
    Uint64 "uint64" 8 "64 bits without sign.";
    Int8 "int8" 1 "8 bits with sign.";
    Int16 "int16" 2 "16 bits with sign.";
    Int32 "int32" 4 "32 bits with sign. `int` is another name for it.";
    Int64 "int64" 8 "64 bits with sign.";
    Uintptr "uintptr" 8 "An address; 64 bits without sign on the wire, whatever the machine.";
    Intptr "intptr" 8 "A difference of addresses; 64 bits with sign on the wire.";
    Size "size" 8 "A size in memory; 64 bits without sign on the wire.";
    Float32 "float32" 4 "IEEE 754, 32 bits (edition 1). Every bit travels, those of NaN too.";
    Float64 "float64" 8 "IEEE 754, 64 bits (edition 1). Every bit travels, those of NaN too.";
    Bool "bool" 1 "0 or 1. Other values are refused.";
    Char "char" 1 "A byte of text, of no particular encoding.";
    Iref "iref" 8 "Names an exported service. 64 bits: an export's identifier.";
    Errval "errval" 8 "Barrelfish's stack of error numbers. 64 bits on the wire, as on its 64-bit machines.";
    String "String" 0 "UTF-8, with a bound in bytes. Stands as a type only in constants.";
}

impl Builtin {
    /// The type of this name. `int` is `int32`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "int" => Some(Self::Int32),
            _ => Self::ALL.iter().copied().find(|one| one.as_str() == name),
        }
    }

    /// Whether values have a sign.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 | Self::Intptr)
    }

    /// Whether values are integers: all but `float32`, `float64`, `bool`, `char` and `String`.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        !self.is_float() && !matches!(self, Self::Bool | Self::Char | Self::String)
    }

    /// Whether values are floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }

    /// Whether machines differ in the size of the type in memory.
    #[must_use]
    pub const fn is_machine_word(self) -> bool {
        matches!(self, Self::Uintptr | Self::Intptr | Self::Size)
    }

    /// The smallest and the largest value of an integer type.
    #[must_use]
    pub const fn range(self) -> (i128, i128) {
        let bits = 8 * self.bytes();
        if self.is_signed() {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        }
    }
}
