//! The codes of all diagnostics. A code keeps its meaning for ever; a code that is no longer needed is not used again.

use std::fmt;

/// How serious a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file is accepted; something in it should be looked at.
    Warning,
    /// The file is refused.
    Error,
}

impl Severity {
    /// `error` or `warning`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! codes {
    ($($name:ident $text:literal $title:literal;)*) => {
        /// What a diagnostic is about, whatever its words: `E0020`. Codes with `E` are errors, those with `W` are
        /// warnings.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = concat!("`", $text, "`: ", $title, ".")] $name,)*
        }

        impl Code {
            /// All codes, errors first.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it is printed: `E0020`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What the code means, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    NotUtf8 "E0001" "the file is not UTF-8";
    UnexpectedCharacter "E0002" "a character that the language does not use";
    Unterminated "E0003" "a comment or a string that does not end";
    BadNumber "E0004" "a number that cannot be read or is out of range";
    Expected "E0005" "something else was expected here";
    NestedTooDeep "E0006" "types that are nested too deeply";
    FileTooLarge "E0007" "the file is too large";
    NeedsEdition "E0008" "a construct of edition 1 in a file of edition 0";
    UnknownEdition "E0009" "an edition that does not exist";
    ReservedName "E0010" "a reserved word used as a name";
    BadString "E0011" "a string with an unknown escape";
    NameTooLong "E0012" "a name that is too long";
    UndeclaredType "E0020" "a type that is not declared";
    TypeTwice "E0021" "a type that is declared twice";
    MessageTwice "E0022" "a message that is declared twice";
    ArgumentTwice "E0023" "an argument that is declared twice";
    MemberTwice "E0024" "a field, value or error that is declared twice";
    UsedBeforeDeclared "E0025" "a type that is used before its declaration";
    AliasOfDeclared "E0026" "an alias of a type that is not built in";
    ContainsItself "E0027" "a type that contains itself";
    TypeAfterMessage "E0028" "a type that is declared after a message";
    UndeclaredConstant "E0029" "a constant that is not declared";
    BadBound "E0030" "a bound of zero, or one that is too large";
    BoundNotPossible "E0031" "a bound on a type that has none";
    BoundMissing "E0032" "a bound that is missing";
    TypeNotPossible "E0033" "a type that is not possible here";
    TooLarge "E0034" "a type or message that is too large";
    BadValue "E0035" "a value that does not fit its type";
    DirectionMissing "E0040" "an rpc's argument without direction";
    DirectionNotPossible "E0041" "a direction on an argument of a message";
    BadOrdinal "E0042" "an ordinal that is missing, out of range or used twice";
    BadErrors "E0043" "errors of an rpc that are unknown or not possible";
    NoMessages "E0044" "an interface without messages";
    WireNameTwice "E0045" "two messages with one name on the wire";
    UndeclaredInterface "E0046" "an interface that is not known here";
    TwoTypesOneName "E0047" "two types of one name in one interface";
    ImportFailed "E0050" "an import that cannot be read";
    ImportNotPossible "E0051" "an import that is not possible";
    NoInterface "E0052" "a file without an interface";
    InterfaceTwice "E0053" "a second interface in one file";
    TooManyErrors "E0099" "too many errors";
    NameIsNotFile "W0001" "the interface is not named as its file";
    LegacyKeyword "W0002" "`call` or `response`, which Flounder no longer has";
    LegacyString "W0003" "`string` instead of `String`";
    LegacyUnbounded "W0004" "a string or array without a bound";
    BuiltinWins "W0005" "an alias that has no effect, because a type of that name is built in";
    HidesImport "W0006" "a type that hides an imported one";
    MachineWord "W0007" "a type whose size depends on the machine";
    MetaNamesNothing "W0008" "an annotation that names no argument";
    UnusedDocumentation "W0009" "documentation that belongs to nothing";
    UnusedImport "W0010" "an import from which nothing is used";
}

impl Code {
    /// Whether diagnostics of this code are errors or warnings.
    #[must_use]
    pub const fn severity(self) -> Severity {
        if self.as_str().as_bytes()[0] == b'E' { Severity::Error } else { Severity::Warning }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_well_formed() {
        let mut seen = Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>();
        assert!(seen.is_sorted());
        seen.dedup();
        assert_eq!(seen.len(), Code::ALL.len());
        assert_eq!(Code::NameIsNotFile.severity(), Severity::Warning);
        assert_eq!(Code::NotUtf8.severity(), Severity::Error);
    }
}
