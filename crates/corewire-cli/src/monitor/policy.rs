//! The policy file.

use std::path::Path;

use corewire_bind::SERVICE_NAME_BYTES_MAX;
use corewire_circuit::node::{Act, Policy, Rule};
use corewire_layout::name::ChannelName;
use corewire_os::file::read_regular_text;
use corewire_os::process::effective_uid;
use serde::Deserialize;

use crate::access::NAMES_BYTES_MAX;
use crate::failure::Failure;
use crate::units;

/// The longest policy file.
const POLICY_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<FileRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    allow: Allow,
    names: String,
    users: Option<Vec<Who>>,
    groups: Option<Vec<Who>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Allow {
    Bind,
    Export,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "neither a number nor a name in quotes")]
enum Who {
    Number(u32),
    Name(String),
}

/// Reads a policy file.
pub(super) fn read(path: &Path) -> Result<Policy, Failure> {
    let shown = units::printable(&path.to_string_lossy());
    let text = read_regular_text(path, POLICY_BYTES_MAX)
        .map_err(|error| Failure::usage(format!("policy {shown}: {error}")))?;
    parse(&text).map_err(|error| Failure::usage(format!("policy {shown}: {error}")))
}

fn parse(text: &str) -> Result<Policy, String> {
    let file: File = toml::from_str(text).map_err(|error| in_one_line(text, &error))?;
    let rules = file.rule.into_iter().zip(1..).map(|(rule, number)| {
        let lists: Vec<_> = [&rule.users, &rule.groups].into_iter().flatten().collect();
        if !lists.is_empty() && lists.iter().all(|list| list.is_empty()) {
            let text =
                "users and groups are empty, so nobody may; without those keys, everybody may";
            return Err(format!("rule {number}: {text}"));
        }
        let all = |list: &Option<Vec<Who>>, file: &str| -> Result<Vec<u32>, String> {
            list.iter().flatten().map(|who| number_of(who, file)).collect()
        };
        check_names(&rule.names).map_err(|error| format!("rule {number}: {error}"))?;
        Ok(Rule {
            act: match rule.allow {
                Allow::Bind => Act::Bind,
                Allow::Export => Act::Export,
            },
            names: rule.names,
            users: all(&rule.users, "/etc/passwd")?,
            groups: all(&rule.groups, "/etc/group")?,
        })
    });
    Ok(Policy { owner: effective_uid(), rules: rules.collect::<Result<_, String>>()? })
}

/// What a parser says, with where it says it.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', ", ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let line = before.split('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {message}")
}

/// A service must be able to have such a name.
fn check_names(names: &str) -> Result<(), String> {
    let beginning = names.strip_suffix('*').unwrap_or(names);
    if beginning.contains('*') {
        return Err(format!(
            "names = {names:?}: `*` stands for the rest of a name, at its end only"
        ));
    }
    match names {
        "*" => Ok(()),
        _ => ChannelName::check(beginning, SERVICE_NAME_BYTES_MAX)
            .map_err(|error| format!("no service can have a {error}")),
    }
}

/// The number of a user or a group, from the third field of its line.
fn number_of(who: &Who, file: &str) -> Result<u32, String> {
    let name = match who {
        Who::Number(number) => return Ok(*number),
        Who::Name(name) => name,
    };
    let text = read_regular_text(Path::new(file), NAMES_BYTES_MAX)
        .map_err(|error| format!("{file}: {error}"))?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    let number = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    number.ok_or_else(|| format!("{name:?} is not in {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read() {
        let text = "
            [[rule]]
            allow = 'bind'
            names = 'calculator*'
            users = ['root', 1001]
            groups = []
            [[rule]]
            allow = 'export'
            names = 'clock'
        ";
        let policy = parse(text).unwrap();
        assert_eq!(policy.rules[0].users, [0, 1001]);
        assert_eq!(policy.rules[1].act, Act::Export);
    }

    #[test]
    fn what_is_no_policy_says_why() {
        for (text, part) in [
            ("[[rule]]\nallow = 'bind'", "missing field `names`"),
            ("[[rule]]\nallow = 'fly'\nnames = 'x'", "unknown variant `fly`"),
            ("[[rules]]\n", "unknown field `rules`"),
            ("[[rule]]\nallow='bind'\nnames='x'\nusers=['no one']", "\"no one\" is not in"),
            ("[[rule]]\nallow='bind'\nnames='x'\nusers=[1.5]", "line 4, column 7: neither a nu"),
            ("[[rule]]\nallow='bind'\nnames='x'\nusers=[-1]", "neither a number nor a name"),
            ("[[rule]]\nallow='bind'\nnames='x'\nusers=[]", "rule 1: users and groups are empty"),
            ("[[rule]]\nallow='bind'\nnames='*calc'", "rule 1: names = \"*calc\": `*` stands"),
            ("[[rule]]\nallow='bind'\nnames='calc**'", "at its end only"),
            ("[[rule]]\nallow='bind'\nnames='calc/*'", "character '/' is not allowed"),
            ("[[rule]]\nallow='bind'\nnames=''", "no service can have a name without a char"),
            ("rule", "line 1, column 5: key with no value"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
