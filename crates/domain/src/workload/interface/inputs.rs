//! Validates the inputs of a run against the form.

use super::{
    Fault, Finding, InterfaceConfig,
    finding::{Findings, below},
};
use serde_json::{Map, Value};

/// The path of the inputs in a request.
const PATH: &str = "inputs";

impl InterfaceConfig {
    /// The effective inputs of a run: the submitted ones and the defaults of omitted fields.
    ///
    /// # Errors
    /// With all problems by field. Names are compared as texts: `__proto__` is an unknown field like any other.
    pub fn admit(&self, sent: &Map<String, Value>) -> Result<Map<String, Value>, Vec<Finding>> {
        let mut findings = Findings::default();
        let mut inputs = sent.clone();
        for field in self.input_fields() {
            let path = below(PATH, &field.name);
            match (sent.get(&field.name), &field.default) {
                (Some(value), _) if field.is_required() && field.is_blank(value) => {
                    findings.push(&path, Fault::Missing);
                }
                (Some(value), _) => {
                    findings.note(&path, field.admit(value));
                }
                (None, Some(default)) => {
                    inputs.insert(field.name.clone(), default.clone());
                }
                (None, None) => {
                    findings.hold(&path, !field.is_required(), Fault::Missing);
                }
            }
        }
        for name in sent.keys().filter(|name| self.input_fields().iter().all(|field| field.name != **name)) {
            findings.push(&below(PATH, name), Fault::Unknown);
        }
        findings.or(Some(inputs))
    }
}
