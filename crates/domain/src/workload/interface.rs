//! How a workload shows itself to people: the form that asks for its inputs, the look, and who may come.
//!
//! A configuration is kept as it was given, without the defaults of what it leaves out; the methods say what holds.
//! Reading one finds everything that is wrong with it, not only the first thing.

mod field;
mod finding;
mod inputs;
mod schema;
mod theme;

pub use field::{FieldType, InputField};
pub use finding::{Fault, Finding, MOST_FINDINGS};
pub use theme::Theme;

use crate::text::is_prose;
use finding::Findings;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Most input fields.
pub const MOST_FIELDS: usize = 50;
/// Longest description, in characters.
const LONGEST_DESCRIPTION: usize = 2_000;
/// Most bytes of a configuration as JSON. Lists of workloads carry it with every row.
pub const MAX_INTERFACE_BYTES: usize = 64 << 10;
/// Executions that a rollback recommendation looks at, where nothing else is said.
const SAMPLE_SIZE: u32 = 20;
/// The share of failures from which it recommends a rollback, where nothing else is said.
const ERROR_THRESHOLD: f64 = 0.3;

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$case_doc])* #[serde(rename = $text)] $case,)*
        }

        impl $name {
            /// Every case, as spelled on the wire.
            pub const SPELLINGS: &[&str] = &[$($text,)*];

            /// The spelling on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$case => $text,)*
                }
            }

            /// The case of that spelling.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$case),)*
                    _ => None,
                }
            }
        }
    };
}
use spelled;

spelled! {
    /// What the interface looks like.
    PresentationMode {
        /// Fields, and a button.
        Form = "form",
        /// A conversation.
        Chat = "chat",
        /// A part of another page.
        Block = "block",
    }
}

spelled! {
    /// How an answer is shown.
    OutputDisplay {
        /// As it is, in a panel.
        Text = "text",
        /// As a tree.
        Json = "json",
        /// As a document.
        Markdown = "markdown",
        /// As rows, from an array of objects.
        Table = "table",
    }
}

spelled! {
    /// Who may come.
    AccessMode {
        /// Who has signed in and may run the workload, or holds a share link.
        Authenticated = "authenticated",
        /// Everybody, as often as the rate limit allows.
        Public = "public",
        /// Who holds a share link.
        LinkShared = "link_shared",
    }
}

/// When a rollback is recommended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RolloutConfig {
    /// How many executions are looked at: 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_size: Option<u32>,
    /// The share of failures beyond which it is: 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_threshold: Option<Number>,
}

impl RolloutConfig {
    /// How many executions are looked at.
    #[must_use]
    pub fn sample_size(&self) -> u32 {
        self.sample_size.unwrap_or(SAMPLE_SIZE)
    }

    /// The share of failures beyond which a rollback is recommended.
    #[must_use]
    pub fn error_threshold(&self) -> f64 {
        self.error_threshold.as_ref().and_then(Number::as_f64).unwrap_or(ERROR_THRESHOLD)
    }
}

/// How a workload shows itself to people. Source: specification, interface_config; contract, section 3.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InterfaceConfig {
    presentation_mode: PresentationMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_fields: Option<Vec<InputField>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_display: Option<OutputDisplay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    theme: Option<Theme>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_config: Option<RolloutConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_mode: Option<AccessMode>,
}

impl InterfaceConfig {
    /// Reads a configuration from outside. An optional member that is null counts as absent.
    ///
    /// # Errors
    /// With everything that is wrong, [`MOST_FINDINGS`] at most; paths are relative to the configuration.
    pub fn read(document: &Value) -> Result<Self, Vec<Finding>> {
        let mut findings = Findings::default();
        let config = config(document, &mut findings);
        if let Some(config) = &config {
            findings.hold("", config.to_document().to_string().len() <= MAX_INTERFACE_BYTES, Fault::TooLong);
        }
        findings.or(config)
    }

    /// What it looks like.
    #[must_use]
    pub const fn presentation_mode(&self) -> PresentationMode {
        self.presentation_mode
    }

    /// What it is for, for people; empty where nothing is said.
    #[must_use]
    pub fn description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// What it asks for.
    #[must_use]
    pub fn input_fields(&self) -> &[InputField] {
        self.input_fields.as_deref().unwrap_or_default()
    }

    /// How its answer is shown.
    #[must_use]
    pub fn output_display(&self) -> OutputDisplay {
        self.output_display.unwrap_or(OutputDisplay::Text)
    }

    /// Who may come.
    #[must_use]
    pub fn access_mode(&self) -> AccessMode {
        self.access_mode.unwrap_or(AccessMode::Authenticated)
    }

    /// When a rollback is recommended.
    #[must_use]
    pub fn rollout_config(&self) -> RolloutConfig {
        self.rollout_config.clone().unwrap_or_default()
    }

    /// The same with its defaults spelled out, for who shows it.
    #[must_use]
    pub fn in_full(&self) -> Self {
        Self {
            presentation_mode: self.presentation_mode,
            description: Some(self.description().to_owned()),
            input_fields: Some(self.input_fields().to_vec()),
            output_display: Some(self.output_display()),
            theme: Some(self.theme.clone().unwrap_or_default()),
            rollout_config: self.rollout_config.clone(),
            access_mode: Some(self.access_mode()),
        }
    }

    /// An estimate of the heap memory that the configuration takes, in bytes. Caches weigh entries by it.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let fields = self.input_fields().iter().map(InputField::heap_bytes);
        let theme = self.theme.as_ref().map_or(0, Theme::heap_bytes);
        fields.sum::<usize>().saturating_add(self.description().len()).saturating_add(theme)
    }

    /// The configuration as JSON.
    #[must_use]
    pub fn to_document(&self) -> Value {
        // Texts, numbers and lists of them always have a form in JSON.
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn config(document: &Value, findings: &mut Findings) -> Option<InterfaceConfig> {
    const KNOWN: &[&str] = &[
        "presentation_mode",
        "description",
        "input_fields",
        "output_display",
        "theme",
        "rollout_config",
        "access_mode",
    ];
    let members = findings.object(document, "", KNOWN)?;
    let presentation_mode = findings.required(members, "", "presentation_mode");
    let presentation_mode =
        presentation_mode.and_then(|value| findings.case("presentation_mode", value, PresentationMode::parse));
    let description = findings.optional(members, "description").and_then(|value| {
        let text = findings.text("description", value)?;
        let fits = is_prose(text, LONGEST_DESCRIPTION);
        findings.hold("description", fits, Fault::Text).then(|| text.to_owned())
    });
    let input_fields =
        findings.optional(members, "input_fields").and_then(|value| field::read_all(value, "input_fields", findings));
    let output_display = findings
        .optional(members, "output_display")
        .and_then(|value| findings.case("output_display", value, OutputDisplay::parse));
    let theme = findings.optional(members, "theme").and_then(|value| theme::read(value, "theme", findings));
    let rollout_config =
        findings.optional(members, "rollout_config").and_then(|value| rollout(value, "rollout_config", findings));
    let access_mode = findings
        .optional(members, "access_mode")
        .and_then(|value| findings.case("access_mode", value, AccessMode::parse));
    Some(InterfaceConfig {
        presentation_mode: presentation_mode?,
        description,
        input_fields,
        output_display,
        theme,
        rollout_config,
        access_mode,
    })
}

fn rollout(value: &Value, path: &str, findings: &mut Findings) -> Option<RolloutConfig> {
    let members = findings.object(value, path, &["sample_size", "error_threshold"])?;
    let sample_size = findings
        .optional(members, "sample_size")
        .and_then(|value| findings.whole(&finding::below(path, "sample_size"), value, 1..=1_000));
    let error_threshold = findings.optional(members, "error_threshold").and_then(|value| {
        let path = finding::below(path, "error_threshold");
        let number = findings.number(&path, value)?;
        let share = number.as_f64().is_some_and(|share| (0.0..=1.0).contains(&share));
        findings.hold(&path, share, Fault::OutOfBounds).then(|| number.clone())
    });
    Some(RolloutConfig { sample_size, error_threshold })
}

#[cfg(test)]
mod tests;
