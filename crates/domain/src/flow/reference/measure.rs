//! Measures a template's value without creating it.

use super::{ReferenceScope, ResolveError, Template, TextPart, TextTemplate, lookup};
use crate::flow::budget::{BudgetExhausted, ValueBudget};
use serde_json::Value;
use std::fmt::{self, Write as _};

impl Template {
    /// Charges the budget exactly as [`Self::resolve`] does, without copying values.
    ///
    /// # Errors
    /// The errors of [`Self::resolve`].
    pub fn measure(&self, scope: &dyn ReferenceScope, allowance: &mut ValueBudget) -> Result<(), ResolveError> {
        self.measure_at(scope, allowance, 0)
    }

    fn measure_at(
        &self,
        scope: &dyn ReferenceScope,
        allowance: &mut ValueBudget,
        above: usize,
    ) -> Result<(), ResolveError> {
        match self {
            Self::Scalar(value) => Ok(allowance.charge_at(value, above)?),
            Self::Text(text) => text.measure(scope, allowance, above),
            Self::List(items) => {
                allowance.charge_level(above)?;
                items.iter().try_for_each(|item| item.measure_at(scope, &mut *allowance, above + 1))
            }
            Self::Object(members) => {
                allowance.charge_level(above)?;
                members.iter().try_for_each(|(key, member)| {
                    allowance.charge_key(key)?;
                    member.measure_at(scope, &mut *allowance, above + 1)
                })
            }
        }
    }
}

impl TextTemplate {
    fn measure(
        &self,
        scope: &dyn ReferenceScope,
        allowance: &mut ValueBudget,
        above: usize,
    ) -> Result<(), ResolveError> {
        if let [TextPart::Reference(only)] = self.parts.as_slice() {
            return Ok(allowance.charge_at(&*lookup(scope, only)?, above)?);
        }
        allowance.charge_level(above)?;
        for part in &self.parts {
            match part {
                TextPart::Literal(text) => allowance.charge_text(text)?,
                TextPart::Reference(reference) => match lookup(scope, reference)?.as_ref() {
                    Value::Null => {}
                    Value::String(text) => allowance.charge_text(text)?,
                    value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        write!(BudgetCounter(allowance), "{value}").map_err(|_| BudgetExhausted)?;
                    }
                },
            }
        }
        Ok(())
    }
}

/// A writer that charges the budget and discards the text.
struct BudgetCounter<'a>(&'a mut ValueBudget);

impl fmt::Write for BudgetCounter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.charge_text(text).map_err(|_| fmt::Error)
    }
}
