//! Validates the inputs of a run against the form of the workload.

use super::{
    InterfaceConfig, InterfaceProblem, ProblemKind,
    problem::{Problems, member_path},
};
use serde_json::{Map, Value};

/// The path of the inputs in the request that submits a run.
const PATH: &str = "inputs";

impl InterfaceConfig {
    /// The effective inputs of a run: the submitted inputs, and the defaults of omitted fields.
    ///
    /// # Errors
    /// Returns all problems, each with the path of its field. A name that no field has is a problem too, even a special
    /// name such as `__proto__`.
    pub fn effective_inputs(
        &self,
        submitted: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Vec<InterfaceProblem>> {
        let mut findings = Problems::default();
        let mut inputs = submitted.clone();
        for field in self.input_fields() {
            let path = member_path(PATH, &field.name);
            match (submitted.get(&field.name), &field.default) {
                (Some(value), _) if field.is_required() && field.is_blank(value) => {
                    findings.push(&path, ProblemKind::Missing);
                }
                (Some(value), _) => {
                    findings.record(&path, field.validate(value));
                }
                (None, Some(default)) => {
                    inputs.insert(field.name.clone(), default.clone());
                }
                (None, None) => {
                    findings.check(&path, !field.is_required(), ProblemKind::Missing);
                }
            }
        }
        for name in submitted.keys().filter(|name| self.input_fields().iter().all(|field| field.name != **name)) {
            findings.push(&member_path(PATH, name), ProblemKind::Unknown(&[]));
        }
        findings.into_result(Some(inputs))
    }
}
