//! For each message and its earlier versions: encoding and decoding.

use proc_macro2::TokenStream;
use quote::quote;

use super::Generator;
use super::plan::{Plan, Version};
use crate::form::FormDisagrees;

impl Generator<'_> {
    pub(super) fn messages(&self) -> Result<TokenStream, FormDisagrees> {
        let lowering = self.interface.lowering();
        let mut code = TokenStream::new();
        for plan in &self.plans() {
            if plan.is_versioned() {
                code.extend([self.encode_any(plan), self.decode_any(plan)]);
            }
            for version in &plan.versions {
                let arguments = plan.arguments.iter().take(version.argument_count);
                let arguments = arguments.map(|(_, one)| (one.name.as_str(), &one.of));
                let operations = lowering.operations(plan.can_fail(), arguments)?;
                code.extend(self.encode(plan, version, &operations));
                code.extend(self.decode(plan, version, &operations));
            }
            if plan.is_answer() {
                code.extend(self.result(plan));
            }
        }
        Ok(code)
    }
}

/// The pattern of a version. The current one comes last.
pub(super) fn pattern(version: &Version<'_>) -> TokenStream {
    match version.form.to_string().ends_with("Current") {
        true => quote!(_),
        false => version.form.clone(),
    }
}

pub(super) fn of_version(version: &Version<'_>, plan: &Plan<'_>) -> String {
    match plan.arguments.len() - version.argument_count {
        0 => String::new(),
        1 => ", as it was without its last argument".to_owned(),
        count => format!(", as it was without its last {count} arguments"),
    }
}
