//! Command lines that are wrong, told in one line.

use clap::error::{ContextKind, ContextValue};

/// A negative number behind an option is its value, whether that is possible or not, and no option itself.
pub(crate) fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let is_option = |arg: &clap::Arg| !arg.is_positional() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if is_option(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// The first paragraph of clap's report in one line, what was probably meant, and where to read more: the help of `program`,
/// or of its subcommand `word`.
pub(crate) fn one_line(
    error: &clap::Error,
    of: &clap::Command,
    program: &str,
    word: Option<&str>,
) -> String {
    let report = error.render().to_string();
    let first = report.split("\n\n").next().unwrap_or(&report);
    let words = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut what = words.strip_prefix("error: ").unwrap_or(&words).to_owned();
    if let Some(meant) = suggestion(error) {
        what.push_str(&format!(": did you mean {meant}?"));
    }
    let subcommand = word.filter(|word| of.find_subcommand(word).is_some());
    match subcommand {
        Some(subcommand) => format!("{what} (see '{program} {subcommand} --help')"),
        None => format!("{what} (see '{program} --help')"),
    }
}

/// What clap has that is close to what was written.
fn suggestion(error: &clap::Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind))? {
        ContextValue::String(word) => Some(format!("'{word}'")),
        ContextValue::Strings(words) if !words.is_empty() => {
            let words: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
            Some(words.join(" or "))
        }
        _ => None,
    }
}
