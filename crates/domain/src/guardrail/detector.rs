//! Detectors, which search a value for matches and mask them.

use super::{
    GuardrailAction,
    bounded_pattern::BoundedPattern,
    rewrite_texts::{count_chars, rewrite_texts, truncate_texts},
};
use crate::{
    asset::content::{
        MAX_GUARDRAIL_PATTERN_BYTES,
        embedded_schema::{EmbeddedSchema, SchemaCheckFailure},
    },
    json::{self, JsonRefusal},
    redaction::{PersonalDataClass, Redactor},
};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};

/// The text that replaces a pattern match.
pub(super) const MASK: &str = "[masked]";

/// The names of the available detectors, as content spells them.
pub const DETECTOR_NAMES: [&str; 4] = ["pii", "regex", "max_length", "json_schema"];

/// A detector with its parameters.
#[derive(Clone, Debug)]
pub(super) enum Detector {
    /// Detects personal data, with an action for each class of personal data.
    Pii(BTreeMap<PersonalDataClass, GuardrailAction>),
    /// Detects matches of a pattern.
    Regex(BoundedPattern),
    /// Detects values whose texts have more than this number of characters in total.
    MaxLength(usize),
    /// Detects values that violate a schema.
    JsonSchema(EmbeddedSchema),
    /// A detector that this server does not support.
    Unavailable {
        /// The content field of the unsupported part.
        field: &'static str,
    },
}

/// The result of one detector: its matches, their actions, and the masked value.
#[derive(Debug, Default)]
pub(super) struct DetectorResult {
    /// The number of matches.
    pub(super) count: u64,
    /// Number of matches by class of personal data.
    pub(super) classes: Vec<(PersonalDataClass, u64)>,
    /// The distinct actions that the matches trigger.
    pub(super) actions: Vec<GuardrailAction>,
    /// The value and its context with all matches masked; `None` if nothing is masked.
    pub(super) masked: Option<(Value, Value)>,
}

/// The reason why a detector fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DetectorError {
    /// This server does not support the detector.
    Unavailable,
    /// The detector needs more evaluations than the [`Budget`] has left.
    BudgetExceeded,
    /// The masked value would exceed the memory that is available to it.
    OutOfMemory,
}

/// The evaluations that a check may still perform.
#[derive(Debug)]
pub(super) struct Budget(pub(super) u64);

impl Budget {
    /// Subtracts evaluations, or fails if too few remain.
    pub(super) fn spend(&mut self, evaluations: u64) -> Result<(), DetectorError> {
        self.0 = self.0.checked_sub(evaluations).ok_or(DetectorError::BudgetExceeded)?;
        Ok(())
    }
}

impl DetectorError {
    /// The error code in evidence; `None` for errors that evidence records without a code.
    pub(super) const fn code(self) -> Option<&'static str> {
        match self {
            Self::BudgetExceeded => Some(SchemaCheckFailure::BudgetExceeded.code("")),
            Self::Unavailable | Self::OutOfMemory => None,
        }
    }
}

/// The class of personal data with this entity name, in Fairway's or in Presidio's spelling.
pub(super) fn class_of_entity(name: &str) -> Option<PersonalDataClass> {
    Some(match name {
        "EMAIL" | "EMAIL_ADDRESS" => PersonalDataClass::Email,
        "PHONE" | "PHONE_NUMBER" => PersonalDataClass::Phone,
        "CARD" | "CREDIT_CARD" => PersonalDataClass::Card,
        "IBAN" | "IBAN_CODE" => PersonalDataClass::Iban,
        "IP" | "IP_ADDRESS" => PersonalDataClass::Ip,
        "NATIONAL_ID" => PersonalDataClass::NationalId,
        _ => return None,
    })
}

impl Detector {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Pii(_) => "pii",
            Self::Regex(_) => "regex",
            Self::MaxLength(_) => "max_length",
            Self::JsonSchema(_) => "json_schema",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    /// Whether the detector itself assigns this action to a class of matches. The action of the guardrail is not
    /// considered here.
    pub(super) fn can_trigger(&self, action: GuardrailAction) -> bool {
        match self {
            Self::Pii(actions) => actions.values().any(|assigned| *assigned == action),
            Self::Regex(_) | Self::MaxLength(_) | Self::JsonSchema(_) | Self::Unavailable { .. } => false,
        }
    }

    /// Estimated memory of the compiled parts, in bytes.
    pub(super) fn compiled_bytes(&self) -> usize {
        match self {
            Self::Regex(_) => MAX_GUARDRAIL_PATTERN_BYTES,
            Self::JsonSchema(schema) => schema.compiled_bytes(),
            Self::Pii(_) | Self::MaxLength(_) | Self::Unavailable { .. } => 0,
        }
    }

    /// Inspects a value and its context within the budget. Fails if the masked texts would exceed `max_masked_bytes`.
    pub(super) fn inspect(
        &self,
        value: &Value,
        context: &Value,
        action: GuardrailAction,
        max_masked_bytes: usize,
        budget: &mut Budget,
        redactor: &Redactor,
    ) -> Result<DetectorResult, DetectorError> {
        let actions_of = |count: u64| if count > 0 { vec![action] } else { Vec::new() };
        match self {
            Self::Pii(actions) => Ok(find_personal_data(value, context, actions, redactor)),
            Self::Regex(pattern) => {
                let (mut masked, mut count, mut remaining_bytes) =
                    ((value.clone(), context.clone()), 0_u64, max_masked_bytes);
                let mut search = pattern.search(budget);
                let mut mask_text = |text: &str| {
                    let (match_count, masked_text) = search.replace(text, MASK, remaining_bytes)?;
                    remaining_bytes = remaining_bytes.saturating_sub(masked_text.len());
                    count = count.saturating_add(match_count);
                    Ok(masked_text)
                };
                rewrite_texts(&mut masked.0, &mut mask_text)?;
                rewrite_texts(&mut masked.1, &mut mask_text)?;
                let masked = (action == GuardrailAction::Mask && count > 0).then_some(masked);
                Ok(DetectorResult { count, classes: Vec::new(), actions: actions_of(count), masked })
            }
            Self::MaxLength(limit) => {
                let count = u64::from(count_chars(value) > *limit);
                let masked = (action == GuardrailAction::Mask && count > 0)
                    .then(|| (truncate_texts(value, *limit), context.clone()));
                Ok(DetectorResult { count, classes: Vec::new(), actions: actions_of(count), masked })
            }
            Self::JsonSchema(schema) => {
                let count = u64::from(is_mismatch(schema, value, budget)?);
                Ok(DetectorResult { count, classes: Vec::new(), actions: actions_of(count), masked: None })
            }
            Self::Unavailable { .. } => Err(DetectorError::Unavailable),
        }
    }
}

fn find_personal_data(
    value: &Value,
    context: &Value,
    actions: &BTreeMap<PersonalDataClass, GuardrailAction>,
    redactor: &Redactor,
) -> DetectorResult {
    let is_masked = |class: &PersonalDataClass| actions.get(class) == Some(&GuardrailAction::Mask);
    let unmasked: Vec<PersonalDataClass> =
        PersonalDataClass::ALL.into_iter().filter(|class| !is_masked(class)).collect();
    let (redactor, mut masked) = (redactor.without_masking(&unmasked), (value.clone(), context.clone()));
    let mut counts = redactor.redact(&mut masked.0);
    counts.add_all(&redactor.redact(&mut masked.1));
    let classes: Vec<(PersonalDataClass, u64)> = counts.iter().collect();
    let mut triggered: Vec<GuardrailAction> =
        classes.iter().filter_map(|(class, _)| actions.get(class).copied()).collect();
    triggered.sort_unstable();
    triggered.dedup();
    let changed = triggered.contains(&GuardrailAction::Mask).then_some(masked);
    DetectorResult { count: counts.total(), classes, actions: triggered, masked: changed }
}

/// Whether a value violates a schema. A text is first parsed as JSON, within the limits of [`json::read`].
fn is_mismatch(schema: &EmbeddedSchema, value: &Value, budget: &mut Budget) -> Result<bool, DetectorError> {
    let parsed = match value {
        Value::String(text) => match json::read(text.as_bytes()) {
            Ok(parsed) => Cow::Owned(parsed),
            Err(JsonRefusal::Malformed) => return Ok(true),
            Err(JsonRefusal::TooLarge) => return Err(DetectorError::BudgetExceeded),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Cow::Borrowed(value),
    };
    budget.spend(schema.max_evaluations(&parsed))?;
    match schema.check_value(&parsed) {
        Ok(()) => Ok(false),
        Err(SchemaCheckFailure::Mismatch) => Ok(true),
        Err(SchemaCheckFailure::BudgetExceeded) => Err(DetectorError::BudgetExceeded),
    }
}
