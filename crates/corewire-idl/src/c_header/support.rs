//! C that is written as C.

/// What every header begins with.
pub(super) const TEXT: &str = include_str!("support.h");

/// The functions of message `$NAME`. `$SIZE` computes its size, `$PUT` writes it, `$GET` reads it.
pub(super) const MESSAGE: &str = include_str!("message.h");

/// The struct for vectors of `$ELEMENT`, which has `$BYTES` on the wire, and its functions. `$GET` reads the element
/// `*value` at `at`, `$PUT` stores the element `vector->items[index]`.
pub(super) const VECTOR: &str = include_str!("vector.h");

/// The same for elements that have strings or vectors of their own. `$GET` reads the element `*value` whose fixed part is
/// at `at`, `$PUT` stores the element `vector->items[index]`, and `$SIZE` adds its strings and vectors to `size`.
pub(super) const VECTOR_OF_PARTS: &str = include_str!("vector_of_parts.h");
