//! How errors show themselves where a program shows the `Debug` of an error: `main` does so with one that it returns.

use alloc::string::{String, ToString};
use core::error::Error;
use core::fmt;

/// Writes the text of an error, and those of its causes that it has not named itself.
///
/// # Errors
/// Those of the formatter.
pub fn show(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        add(&mut text, &one.to_string());
        cause = one.source();
    }
    f.write_str(&text)
}

fn add(text: &mut String, cause: &str) {
    if !text.contains(cause) {
        text.push_str(": ");
        text.push_str(cause);
    }
}

/// Makes the `Debug` of these errors their text, with their causes: it is what a user sees of a program whose `main`
/// returns `Result<(), Box<dyn Error>>`.
#[macro_export]
macro_rules! debug_is_text {
    ($($error:ty),* $(,)?) => {
        $(
            impl core::fmt::Debug for $error {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    $crate::errors::show(self, f)
                }
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use core::error::Error;
    use core::fmt;

    struct Outer(Inner);

    struct Inner;

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot open shop")
        }
    }

    impl fmt::Display for Inner {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("permission denied")
        }
    }

    debug_is_text!(Outer, Inner);

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    impl Error for Inner {}

    // Keeps P238.
    #[test]
    fn an_error_shows_its_text_and_its_causes() {
        assert_eq!(format!("{:?}", Outer(Inner)), "cannot open shop: permission denied");
        assert_eq!(format!("{:?}", Inner), "permission denied");
    }
}
