//! Names that C and C++ accept.

use std::collections::HashSet;

/// Words of C23 and C++26, macros of the headers that are included, and words that compilers define.
const RESERVED: &str = "\
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl \
    concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default \
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline \
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected \
    public register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast \
    struct switch template this thread_local throw true try typedef typeid typename typeof typeof_unqual union \
    unsigned using virtual void volatile wchar_t while xor xor_eq _Alignas _Alignof _Atomic _Bool _Complex _Generic \
    _Imaginary _Noreturn _Static_assert _Thread_local _BitInt \
    NULL offsetof assert errno stdin stdout stderr EOF linux unix i386 \
    strtok_r strerror_r strerror_l strcoll_l strxfrm_l explicit_bzero INFINITY NAN I";

/// Types of the standard headers without their ending, in lower case: `int32`, for `int32_t` and `INT32_MAX`.
const STANDARD: &[&str] = &[
    "size",
    "ssize",
    "rsize",
    "ptrdiff",
    "wchar",
    "wint",
    "sig_atomic",
    "max_align",
    "nullptr",
    "locale",
    "char8",
    "char16",
    "char32",
    "errno",
    "intptr",
    "uintptr",
    "intmax",
    "uintmax",
];

/// The same for `limits.h`.
const LIMITS: &[&str] = &[
    "char", "schar", "uchar", "shrt", "ushrt", "int", "uint", "long", "ulong", "llong", "ullong",
    "mb_len",
];

/// Gives each name once, and none that means something already.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// This name, or with as many underscores behind it as it needs to be new.
    pub(super) fn give(&mut self, name: &str) -> String {
        self.give_all(name, &[])
    }

    /// Like [`give`](Self::give), for a member of a struct: it is none of `others` either.
    pub(super) fn give_member(&mut self, name: &str, others: &Self) -> String {
        let mut name = self.give(name);
        while others.0.contains(&name) {
            name = self.give(&format!("{name}_"));
        }
        name
    }

    /// Like [`give`](Self::give), and the name with each of these endings is new, too, as are the names of macros that
    /// are made of both.
    pub(super) fn give_all(&mut self, stem: &str, endings: &[&str]) -> String {
        let mut stem = stem.to_owned();
        let all = |stem: &str| {
            let names = endings.iter().map(|ending| format!("{stem}{ending}"));
            let names = names.chain([stem.to_owned()]).collect::<Vec<_>>();
            let macros =
                endings.iter().map(|ending| format!("{stem}{ending}").to_ascii_uppercase());
            macros.chain(names.clone()).collect::<HashSet<_>>()
        };
        while all(&stem).iter().any(|name| self.0.contains(name) || is_reserved(name)) {
            stem.push('_');
        }
        self.0.extend(all(&stem));
        stem
    }
}

fn is_reserved(name: &str) -> bool {
    RESERVED.split_whitespace().any(|word| word == name)
        || (name.to_ascii_lowercase().starts_with("corewire_") && is_support(name))
        || is_standard(name)
}

fn is_support(name: &str) -> bool {
    super::support::TEXT
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .any(|word| word == name)
}

fn is_standard(name: &str) -> bool {
    let ending =
        ["_t", "_MIN", "_MAX", "_C", "_WIDTH"].iter().find_map(|end| name.strip_suffix(end));
    ending.is_some_and(|stem| {
        let stem = stem.to_ascii_lowercase();
        let number = stem.strip_prefix("int").or_else(|| stem.strip_prefix("uint"));
        let number =
            number.map(|rest| rest.trim_start_matches("_least").trim_start_matches("_fast"));
        let is_number = number.is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit())
        });
        let is_limit = name.ends_with("_MIN") || name.ends_with("_MAX");
        is_number
            || is_limit && LIMITS.contains(&stem.as_str())
            || STANDARD.contains(&stem.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_nothing_else() {
        let mut names = Names::default();
        for word in
            ["int", "size_t", "INT_MAX", "uint8_t", "UINT8_MAX", "INT_LEAST16_MAX", "corewire_take"]
        {
            assert_eq!(names.give(word), format!("{word}_"));
        }
        assert_eq!(names.give("calc_log"), "calc_log");
        assert_eq!(names.give("calc_log"), "calc_log_");
        assert_eq!(names.give("CALC_ASK_SIZE"), "CALC_ASK_SIZE");
        assert_eq!(names.give_all("calc_ask", &["_size"]), "calc_ask_");
    }
}
