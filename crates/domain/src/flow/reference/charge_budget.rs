//! Charges the budget for the resolved value of a template without creating this value.

use super::{ReferenceResolver, ResolveError, Template, TextPart, TextTemplate, lookup};
use crate::flow::value_budget::{ValueBudget, ValueLimitExceeded};
use serde_json::Value;
use std::fmt::{self, Write as _};

impl Template {
    /// Charges the budget with the same amount as [`Self::resolve`], without copying values.
    ///
    /// # Errors
    /// The errors of [`Self::resolve`].
    pub fn charge_budget(&self, scope: &dyn ReferenceResolver, budget: &mut ValueBudget) -> Result<(), ResolveError> {
        self.charge_budget_at(scope, budget, 0)
    }

    fn charge_budget_at(
        &self,
        scope: &dyn ReferenceResolver,
        budget: &mut ValueBudget,
        depth: usize,
    ) -> Result<(), ResolveError> {
        match self {
            Self::Scalar(value) => Ok(budget.charge_at(value, depth)?),
            Self::Text(text) => text.charge_budget(scope, budget, depth),
            Self::List(items) => {
                budget.charge_level(depth)?;
                items.iter().try_for_each(|item| item.charge_budget_at(scope, &mut *budget, depth + 1))
            }
            Self::Object(members) => {
                budget.charge_level(depth)?;
                members.iter().try_for_each(|(key, member)| {
                    budget.charge_key(key)?;
                    member.charge_budget_at(scope, &mut *budget, depth + 1)
                })
            }
        }
    }
}

impl TextTemplate {
    fn charge_budget(
        &self,
        scope: &dyn ReferenceResolver,
        budget: &mut ValueBudget,
        depth: usize,
    ) -> Result<(), ResolveError> {
        if let [TextPart::Reference(only)] = self.parts.as_slice() {
            return Ok(budget.charge_at(&*lookup(scope, only)?, depth)?);
        }
        budget.charge_level(depth)?;
        for part in &self.parts {
            match part {
                TextPart::Literal(text) => budget.charge_text(text)?,
                TextPart::Reference(reference) => match lookup(scope, reference)?.as_ref() {
                    Value::Null => {}
                    Value::String(text) => budget.charge_text(text)?,
                    value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        write!(BudgetCounter(budget), "{value}").map_err(|_| ValueLimitExceeded)?;
                    }
                },
            }
        }
        Ok(())
    }
}

/// A writer that charges the budget for a text and discards the text.
struct BudgetCounter<'a>(&'a mut ValueBudget);

impl fmt::Write for BudgetCounter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.charge_text(text).map_err(|_| fmt::Error)
    }
}
