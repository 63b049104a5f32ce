//! Errors with which an rpc can answer.

use serde::{Deserialize, Serialize};

use super::facts::Known;
use super::{EnumValue, Field, Hash, Layout};

/// The errors that an rpc can answer with. Unknown ones are possible, so adding one breaks nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorSet {
    /// The name.
    pub name: String,
    /// Lines of documentation.
    pub docs: Vec<String>,
    /// Whether errors can have details (form 2). Then the errors that both sides know are compared when they bind.
    #[serde(default, skip_serializing_if = "is_false")]
    pub detailed: bool,
    /// The errors. Their values are greater than 0: 0 is success.
    pub values: Vec<EnumValue>,
    /// The details of those that have some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Details>,
}

/// What an error tells besides its number. In the reply it lies behind the fixed part, which is zeros but for the error:
/// a number of bytes (`uint32`), then as many bytes, laid out as the arguments of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// The name of the error.
    pub error: String,
    /// The fields, in the order of the file.
    pub fields: Vec<Field>,
    /// Where they lie.
    pub layout: Layout,
}

impl ErrorSet {
    /// The details of an error, if it has some.
    #[must_use]
    pub fn details_of(&self, error: &EnumValue) -> Option<&Details> {
        self.details.iter().find(|details| details.error == error.name)
    }

    /// The fields of the details of an error.
    pub(crate) fn fields_of(&self, error: &EnumValue) -> &[Field] {
        self.details_of(error).map(|details| details.fields.as_slice()).unwrap_or_default()
    }

    /// What is compared when two processes bind, for each error of a detailed set: its name with that of the set, and the
    /// hash of its value and its details.
    pub(super) fn structures<'s>(
        &'s self,
        known: &'s Known,
    ) -> impl Iterator<Item = (String, Hash)> + 's {
        let values = self.values.iter().filter(|_| self.detailed);
        values.map(|one| {
            let text = format!("{}={}({})", one.name, one.value, known.fields(self.fields_of(one)));
            (format!("{}.{}", self.name, one.name), Hash::of(&text))
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) const fn is_false(value: &bool) -> bool {
    !*value
}
