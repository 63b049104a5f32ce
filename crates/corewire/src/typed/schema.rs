//! The types that messages can have, and the schema that both sides of a channel compare.

use std::marker::PhantomData;

use corewire_layout::message_type::{TYPE_NAME_BYTES_MAX, TypeKey, TypeName, TypeTag};
use corewire_layout::slot::INLINE_BYTES_MAX;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The declared type of a channel's messages, as the channel states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ChannelType {
    /// Its name: printable ASCII characters.
    pub name: String,
    /// Size of one value in bytes.
    pub bytes: u64,
}

/// A type that messages can have: plain data of a fixed layout. Numbers and arrays are; a struct is
/// declared by [`#[corewire::message]`](macro@crate::message), which is the only way to implement
/// this trait. A receiver of another type, or of another version of it, is refused when it joins.
///
/// ```
/// use corewire::MessageType;
///
/// #[corewire::message]
/// struct Quote {
///     bid: u64,
///     ask: u64,
/// }
///
/// #[corewire::message(name = "example.Book.1")]
/// struct Book {
///     quotes: [Quote; 4],
/// }
///
/// assert_eq!(Quote::NAME, "Quote");
/// assert_eq!(Book::NAME, "example.Book.1");
/// assert_eq!(<[f32; 3]>::NAME, "[f32; 3]");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not declared as a type of messages",
    note = "declare the struct with `#[corewire::message]`"
)]
pub trait MessageType: FromBytes + IntoBytes + KnownLayout + Immutable + Sized {
    /// The type's name, which errors and observers show: 1 to 64 printable ASCII characters.
    const NAME: &'static str;

    #[doc(hidden)]
    const SCHEMA: Schema;
}

/// A hash of everything that both sides of a typed channel must agree on. FNV-1a: it finds
/// mistakes; a peer with bad intentions can send any value.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    hash: u64,
}

impl Schema {
    const EMPTY: Self = Self { hash: 0xcbf2_9ce4_8422_2325 };

    /// The schema of type `T`, before its fields.
    ///
    /// ```compile_fail
    /// #[corewire::message]
    /// #[repr(align(128))] // 64 is possible
    /// struct Page([u8; 128]);
    /// ```
    ///
    /// ```
    /// #[corewire::message]
    /// #[repr(align(64))]
    /// struct Page([u8; 128]);
    /// ```
    ///
    /// # Panics
    /// At compile time, if no message can have this name or alignment.
    #[must_use]
    pub const fn of<T>(name: &str) -> Self {
        let align_max = if size_of::<T>() <= INLINE_BYTES_MAX { 16 } else { 64 };
        assert!(
            align_of::<T>() <= align_max,
            "messages of up to 48 bytes are aligned to 16 bytes, longer ones to 64: no message is \
             aligned like this type"
        );
        assert!(
            matches!(TypeName::new(name), Some(checked) if !checked.is_empty()),
            "the name of a message type is 1 to 64 printable ASCII characters"
        );
        Self::EMPTY.text(name).number(size_of::<T>()).number(align_of::<T>())
    }

    /// Adds a field of type `F`: its own schema if it has one, otherwise its size, its alignment and its `text` in the
    /// source.
    #[must_use]
    pub const fn field<F>(
        self,
        name: &str,
        offset: usize,
        schema: Option<Self>,
        text: &str,
    ) -> Self {
        let field = self.text(name).number(offset);
        match schema {
            Some(schema) => field.number(1).schema(schema),
            None => field.number(0).text(text).number(size_of::<F>()).number(align_of::<F>()),
        }
    }

    const fn of_array<T: MessageType, const N: usize>() -> Self {
        Self::of::<[T; N]>("[]").schema(T::SCHEMA).number(N)
    }

    const fn schema(self, schema: Self) -> Self {
        self.bytes(&schema.hash.to_le_bytes())
    }

    const fn number(self, number: usize) -> Self {
        self.bytes(&(number as u64).to_le_bytes())
    }

    /// Adds a text with its length, so that two texts cannot be confused with one.
    const fn text(self, text: &str) -> Self {
        self.number(text.len()).bytes(text.as_bytes())
    }

    const fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut index = 0;
        while index < bytes.len() {
            self.hash = (self.hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            index += 1;
        }
        self
    }
}

/// Finds the schema of `T` where `T` is one concrete type: `Probe::<T>::SCHEMA` is the constant
/// below if `T` is a message type, and that of [`Undeclared`] otherwise.
#[doc(hidden)]
#[derive(Debug)]
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T: MessageType> Probe<T> {
    /// There is a schema.
    pub const SCHEMA: Option<Schema> = Some(T::SCHEMA);
}

/// What [`Probe`] finds for a type that is not a message type.
#[doc(hidden)]
pub trait Undeclared {
    /// There is no schema.
    const SCHEMA: Option<Schema> = None;
}

impl<T> Undeclared for Probe<T> {}

macro_rules! numbers {
    ($($number:ident)*) => {
        $(impl MessageType for $number {
            const NAME: &'static str = stringify!($number);
            const SCHEMA: Schema = Schema::of::<Self>(Self::NAME);
        })*
    };
}

numbers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 }

impl<T: MessageType, const N: usize> MessageType for [T; N] {
    const NAME: &'static str = ArrayName::<T, N>::NAME;
    const SCHEMA: Schema = Schema::of_array::<T, N>();
}

struct ArrayName<T, const N: usize>(PhantomData<T>);

impl<T: MessageType, const N: usize> ArrayName<T, N> {
    const BYTES: ([u8; TYPE_NAME_BYTES_MAX], usize) = array_name(T::NAME, N);
    const NAME: &'static str = {
        let (bytes, length) = &Self::BYTES;
        match str::from_utf8(bytes.split_at(*length).0) {
            Ok(name) => name,
            Err(_) => panic!("names are ASCII"),
        }
    };
}

/// `[element; count]`, and its length.
const fn array_name(element: &str, count: usize) -> ([u8; TYPE_NAME_BYTES_MAX], usize) {
    // Begins at the end, because the last digit of a number is computed first.
    let mut reversed = [0; TYPE_NAME_BYTES_MAX];
    let mut length = 0;
    let mut rest = count;
    length = push(&mut reversed, length, b']');
    loop {
        #[expect(clippy::cast_possible_truncation, reason = "one digit")]
        let digit = (rest % 10) as u8;
        length = push(&mut reversed, length, b'0' + digit);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    length = push(&mut reversed, length, b' ');
    length = push(&mut reversed, length, b';');
    let element = element.as_bytes();
    let mut left = element.len();
    while left > 0 {
        left -= 1;
        length = push(&mut reversed, length, element[left]);
    }
    length = push(&mut reversed, length, b'[');
    let mut name = [0; TYPE_NAME_BYTES_MAX];
    let mut index = 0;
    while index < length {
        name[index] = reversed[length - 1 - index];
        index += 1;
    }
    (name, length)
}

const fn push(bytes: &mut [u8; TYPE_NAME_BYTES_MAX], length: usize, byte: u8) -> usize {
    assert!(
        length < TYPE_NAME_BYTES_MAX,
        "the name of an array of messages is longer than 64 bytes: declare a struct that holds it"
    );
    bytes[length] = byte;
    length + 1
}

/// The description that a channel of type `T` publishes.
pub(crate) fn tag_of<T: MessageType>() -> TypeTag {
    let name = const {
        match TypeName::new(T::NAME) {
            Some(name) => name,
            None => panic!("the name of a message type is 1 to 64 printable ASCII characters"),
        }
    };
    // 0 means plain bytes.
    let hash = T::SCHEMA.hash.max(1);
    TypeTag { key: TypeKey { hash, bytes: size_of::<T>() as u64 }, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_named_by_element_and_length() {
        assert_eq!(<[u8; 0]>::NAME, "[u8; 0]");
        assert_eq!(<[[i128; 1024]; 37]>::NAME, "[[i128; 1024]; 37]");
    }

    #[test]
    fn a_schema_tells_apart_what_has_one_size() {
        let schemas = [
            u64::SCHEMA,
            i64::SCHEMA,
            f64::SCHEMA,
            <[u64; 1]>::SCHEMA,
            <[u32; 2]>::SCHEMA,
            <[[u32; 2]; 1]>::SCHEMA,
            <[[u32; 1]; 2]>::SCHEMA,
            Schema::of::<u64>("a").field::<u64>("b", 0, None, "u64"),
            Schema::of::<u64>("a").field::<u64>("b", 0, Some(u64::SCHEMA), "u64"),
            Schema::of::<u64>("a").field::<u64>("c", 0, Some(u64::SCHEMA), "u64"),
            Schema::of::<u64>("ab").field::<u64>("", 0, Some(u64::SCHEMA), "u64"),
        ];
        for (index, schema) in schemas.iter().enumerate() {
            assert!(!schemas[..index].contains(schema), "{index}");
        }
    }

    #[test]
    fn a_schema_of_its_own_is_found() {
        assert_eq!(Probe::<[u8; 3]>::SCHEMA, Some(<[u8; 3]>::SCHEMA));
        assert_eq!(Probe::<bool>::SCHEMA, None);
    }
}
