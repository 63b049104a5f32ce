//! The policy file.

use std::path::Path;

use corewire_os::file::read_regular_text;
use corewire_os::process::effective_uid;
use corewire_route::{Act, Policy, Rule};
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
    #[serde(default)]
    users: Vec<Who>,
    #[serde(default)]
    groups: Vec<Who>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Allow {
    Bind,
    Export,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
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
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let rules = file.rule.into_iter().map(|rule| {
        let all = |list: Vec<Who>, file: &str| -> Result<Vec<u32>, String> {
            list.iter().map(|who| number_of(who, file)).collect()
        };
        Ok(Rule {
            act: match rule.allow {
                Allow::Bind => Act::Bind,
                Allow::Export => Act::Export,
            },
            names: rule.names,
            users: all(rule.users, "/etc/passwd")?,
            groups: all(rule.groups, "/etc/group")?,
        })
    });
    Ok(Policy { owner: effective_uid(), rules: rules.collect::<Result<_, String>>()? })
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
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
