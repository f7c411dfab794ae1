//! What looks: detectors, and what each of them finds in a value.

use super::{Action, counted::CountedPattern, texts};
use crate::{
    asset::content::{
        COUNTED_PATTERN_BYTES,
        embedded::{EmbeddedSchema, SchemaRejection},
    },
    json::{self, JsonRefusal},
    redaction::{Class, Redactor},
};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};

/// What stands in the place of what a pattern found.
pub(super) const MASK: &str = "[masked]";

/// What guardrails can look by here, by the names that content has for it.
pub const DETECTORS: [&str; 4] = ["pii", "regex", "max_length", "json_schema"];

/// What looks at values.
#[derive(Clone, Debug)]
pub(super) enum Detector {
    /// Personal data, and what each class of it means.
    Pii(BTreeMap<Class, Action>),
    /// Whatever a pattern finds.
    Regex(CountedPattern),
    /// Texts that have more characters together.
    MaxLength(usize),
    /// Values that a schema does not describe.
    JsonSchema(EmbeddedSchema),
    /// What this server has not.
    Unavailable {
        /// The field that says so.
        field: &'static str,
    },
}

/// What a detector found, and what the value is without it.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// How often.
    pub(super) count: u64,
    /// How often each class of personal data.
    pub(super) classes: Vec<(Class, u64)>,
    /// What has to be done.
    pub(super) actions: Vec<Action>,
    /// The value and what is beside it, with all that is to be masked masked.
    pub(super) masked: Option<(Value, Value)>,
}

/// Why a detector cannot look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blind {
    /// This server has no such detector.
    Unavailable,
    /// The value and the detector's schema or pattern take more evaluations together than are left of the [`Budget`].
    BudgetExceeded,
    /// The value would take more room masked than there is.
    NoRoom,
}

/// The evaluations that are left of a look.
#[derive(Debug)]
pub(super) struct Budget(pub(super) u64);

impl Budget {
    /// Takes some evaluations, before or after they are done.
    pub(super) fn take(&mut self, evaluations: u64) -> Result<(), Blind> {
        self.0 = self.0.checked_sub(evaluations).ok_or(Blind::BudgetExceeded)?;
        Ok(())
    }
}

impl Blind {
    /// The code that evidence has for it, where the detector itself could look.
    pub(super) const fn code(self) -> Option<&'static str> {
        match self {
            Self::BudgetExceeded => Some(SchemaRejection::BudgetExceeded.code("")),
            Self::Unavailable | Self::NoRoom => None,
        }
    }
}

/// The class of personal data of a name: ours, or the name that others have for it.
pub(super) fn class(name: &str) -> Option<Class> {
    Some(match name {
        "EMAIL" | "EMAIL_ADDRESS" => Class::Email,
        "PHONE" | "PHONE_NUMBER" => Class::Phone,
        "CARD" | "CREDIT_CARD" => Class::Card,
        "IBAN" | "IBAN_CODE" => Class::Iban,
        "IP" | "IP_ADDRESS" => Class::Ip,
        "NATIONAL_ID" => Class::NationalId,
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

    /// Whether some of its findings mean this, whatever the others mean.
    pub(super) fn may(&self, wanted: Action) -> bool {
        match self {
            Self::Pii(actions) => actions.values().any(|action| *action == wanted),
            Self::Regex(_) | Self::MaxLength(_) | Self::JsonSchema(_) | Self::Unavailable { .. } => false,
        }
    }

    /// How much memory it may take beside its text.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Regex(_) => COUNTED_PATTERN_BYTES,
            Self::JsonSchema(schema) => schema.bytes(),
            Self::Pii(_) | Self::MaxLength(_) | Self::Unavailable { .. } => 0,
        }
    }

    /// Looks at a value and at what is shown beside it, within a budget. What they become by masking takes at most `room`
    /// bytes of text.
    pub(super) fn find(
        &self,
        (value, beside): (&Value, &Value),
        action: Action,
        (room, budget): (usize, &mut Budget),
        redactor: &Redactor,
    ) -> Result<Found, Blind> {
        let means = |count: u64| if count > 0 { vec![action] } else { Vec::new() };
        match self {
            Self::Pii(actions) => Ok(personal((value, beside), actions, redactor)),
            Self::Regex(pattern) => {
                let (mut masked, mut count, mut left) = ((value.clone(), beside.clone()), 0_u64, room);
                let mut search = pattern.searching(budget);
                let mut change = |text: &str| {
                    let (found, without) = search.replace(text, MASK, left)?;
                    left = left.saturating_sub(without.len());
                    count = count.saturating_add(found);
                    Ok(without)
                };
                texts::rewrite(&mut masked.0, &mut change)?;
                texts::rewrite(&mut masked.1, &mut change)?;
                let masked = (action == Action::Mask && count > 0).then_some(masked);
                Ok(Found { count, classes: Vec::new(), actions: means(count), masked })
            }
            Self::MaxLength(most) => {
                let count = u64::from(texts::characters(value) > *most);
                let masked = (action == Action::Mask && count > 0).then(|| (texts::cut(value, *most), beside.clone()));
                Ok(Found { count, classes: Vec::new(), actions: means(count), masked })
            }
            Self::JsonSchema(schema) => {
                let count = u64::from(is_mismatch(schema, value, budget)?);
                Ok(Found { count, classes: Vec::new(), actions: means(count), masked: None })
            }
            Self::Unavailable { .. } => Err(Blind::Unavailable),
        }
    }
}

fn personal((value, beside): (&Value, &Value), actions: &BTreeMap<Class, Action>, redactor: &Redactor) -> Found {
    let is_masked = |class: &Class| actions.get(class) == Some(&Action::Mask);
    let spared: Vec<Class> = Class::ALL.into_iter().filter(|class| !is_masked(class)).collect();
    let (redactor, mut masked) = (redactor.sparing(&spared), (value.clone(), beside.clone()));
    let mut counts = redactor.redact(&mut masked.0);
    counts.add(&redactor.redact(&mut masked.1));
    let classes: Vec<(Class, u64)> = counts.iter().collect();
    let mut meant: Vec<Action> = classes.iter().filter_map(|(class, _)| actions.get(class).copied()).collect();
    meant.sort_unstable();
    meant.dedup();
    let changed = meant.contains(&Action::Mask).then_some(masked);
    Found { count: counts.total(), classes, actions: meant, masked: changed }
}

/// Whether a value is not what a schema describes. A text is read as JSON first, within the bounds of every JSON that
/// strangers write.
fn is_mismatch(schema: &EmbeddedSchema, value: &Value, budget: &mut Budget) -> Result<bool, Blind> {
    let read = match value {
        Value::String(text) => match json::read(text.as_bytes()) {
            Ok(read) => Cow::Owned(read),
            Err(JsonRefusal::Malformed) => return Ok(true),
            Err(JsonRefusal::TooLarge) => return Err(Blind::BudgetExceeded),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Cow::Borrowed(value),
    };
    budget.take(schema.evaluations(&read))?;
    match schema.check(&read) {
        Ok(()) => Ok(false),
        Err(SchemaRejection::Mismatch) => Ok(true),
        Err(SchemaRejection::BudgetExceeded) => Err(Blind::BudgetExceeded),
    }
}
