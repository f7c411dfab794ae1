//! Measures a template's value without creating it.

use super::{Part, ReferenceScope, Template, Text, Unresolvable, find};
use crate::flow::allowance::{Allowance, Exhausted};
use serde_json::Value;
use std::fmt::{self, Write as _};

impl Template {
    /// Charges the budget exactly as [`Self::resolve`] does, without copying values.
    ///
    /// # Errors
    /// The errors of [`Self::resolve`].
    pub fn measure(&self, scope: &dyn ReferenceScope, allowance: &mut Allowance) -> Result<(), Unresolvable> {
        self.measure_at(scope, (allowance, 0))
    }

    fn measure_at(
        &self,
        scope: &dyn ReferenceScope,
        (allowance, above): (&mut Allowance, usize),
    ) -> Result<(), Unresolvable> {
        match self {
            Self::Plain(value) => Ok(allowance.take_at(value, above)?),
            Self::Text(text) => text.measure(scope, (allowance, above)),
            Self::List(items) => {
                allowance.take_level(above)?;
                items.iter().try_for_each(|item| item.measure_at(scope, (&mut *allowance, above + 1)))
            }
            Self::Object(members) => {
                allowance.take_level(above)?;
                members.iter().try_for_each(|(key, member)| {
                    allowance.take_key(key)?;
                    member.measure_at(scope, (&mut *allowance, above + 1))
                })
            }
        }
    }
}

impl Text {
    fn measure(
        &self,
        scope: &dyn ReferenceScope,
        (allowance, above): (&mut Allowance, usize),
    ) -> Result<(), Unresolvable> {
        if let [Part::Reference(only)] = self.parts.as_slice() {
            return Ok(allowance.take_at(&*find(scope, only)?, above)?);
        }
        allowance.take_level(above)?;
        for part in &self.parts {
            match part {
                Part::Literal(text) => allowance.take_text(text)?,
                Part::Reference(reference) => match find(scope, reference)?.as_ref() {
                    Value::Null => {}
                    Value::String(text) => allowance.take_text(text)?,
                    value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        write!(Measuring(allowance), "{value}").map_err(|_| Exhausted)?;
                    }
                },
            }
        }
        Ok(())
    }
}

/// A writer that charges the budget and discards the text.
struct Measuring<'a>(&'a mut Allowance);

impl fmt::Write for Measuring<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.take_text(text).map_err(|_| fmt::Error)
    }
}
