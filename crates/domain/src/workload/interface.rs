//! The configuration of a workload's user interface: input form, theme, access mode and rollback thresholds.
//!
//! A configuration is stored as the client sent it, without defaults; the methods apply the defaults. Parsing reports
//! all problems at once.

mod field;
mod input_schema;
mod inputs;
mod problem;
mod theme;

pub(crate) use field::is_field_name;
pub use field::{FieldType, InputField};
pub use problem::{ExpectedType, InterfaceProblem, MAX_PROBLEMS, ProblemKind};
pub use theme::Theme;

use crate::text::is_blank_or_prose;
use problem::Problems;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// The maximum number of input fields of a form.
pub const MAX_FIELDS: usize = 50;
/// The maximum length of the interface's description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 2_000;
/// The maximum size of a configuration as JSON, in bytes. It is limited, because each row of a list of workloads
/// contains the configuration.
pub const MAX_INTERFACE_BYTES: usize = 64 << 10;
/// The default number of latest executions that a rollback recommendation evaluates.
const DEFAULT_SAMPLE_SIZE: u32 = 20;
/// The default error rate above which a rollback is recommended.
const DEFAULT_ERROR_THRESHOLD: f64 = 0.3;

macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$case_doc])* #[serde(rename = $text)] $case,)*
        }

        impl $name {
            /// The wire forms of all variants, in the order of declaration.
            pub const SPELLINGS: &[&str] = &[$($text,)*];

            /// The wire form of the variant.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$case => $text,)*
                }
            }

            /// Parses the wire form; `None` for any other text.
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
use wire_enum;

wire_enum! {
    /// How the portal presents the interface to people.
    PresentationMode {
        /// A form with input fields and a button.
        Form = "form",
        /// A conversation with several turns.
        Chat = "chat",
        /// A block that another page embeds.
        Block = "block",
    }
}

wire_enum! {
    /// How the portal displays the answer of a run.
    OutputDisplay {
        /// Plain text in a panel.
        Text = "text",
        /// JSON, displayed as a tree.
        Json = "json",
        /// A rendered Markdown document.
        Markdown = "markdown",
        /// A table whose rows are the objects of an array.
        Table = "table",
    }
}

wire_enum! {
    /// Which callers the interface admits.
    AccessMode {
        /// Authenticated callers with the permission to run the workload, and holders of a share link.
        Authenticated = "authenticated",
        /// All callers; a rate limit applies.
        Public = "public",
        /// Holders of a share link only.
        LinkShared = "link_shared",
    }
}

/// The thresholds from which rollback recommendations are computed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RollbackThresholds {
    /// The number of latest runs to evaluate, 1 to 1000; `None` selects the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_size: Option<u32>,
    /// The maximum acceptable error rate, 0 to 1; `None` selects the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_threshold: Option<Number>,
}

impl RollbackThresholds {
    /// The number of latest runs to evaluate, or its default.
    #[must_use]
    pub fn sample_size(&self) -> u32 {
        self.sample_size.unwrap_or(DEFAULT_SAMPLE_SIZE)
    }

    /// The maximum acceptable error rate, 0 to 1, or its default.
    #[must_use]
    pub fn error_threshold(&self) -> f64 {
        self.error_threshold.as_ref().and_then(Number::as_f64).unwrap_or(DEFAULT_ERROR_THRESHOLD)
    }
}

/// The configuration of a workload's user interface, as the client sent it.
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
    rollout_config: Option<RollbackThresholds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_mode: Option<AccessMode>,
}

impl InterfaceConfig {
    /// Parses an untrusted configuration. An optional member that is null counts as absent.
    ///
    /// # Errors
    /// Returns all problems, at most [`MAX_PROBLEMS`], with paths relative to the configuration.
    pub fn parse(document: &Value) -> Result<Self, Vec<InterfaceProblem>> {
        let mut findings = Problems::default();
        let config = parse_config(document, &mut findings);
        if let Some(config) = &config {
            findings.check("", config.to_document().to_string().len() <= MAX_INTERFACE_BYTES, ProblemKind::TooLong);
        }
        findings.into_result(config)
    }

    /// How the portal presents the interface to people.
    #[must_use]
    pub const fn presentation_mode(&self) -> PresentationMode {
        self.presentation_mode
    }

    /// The description of the interface, for people; empty by default.
    #[must_use]
    pub fn description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// The input fields of the form.
    #[must_use]
    pub fn input_fields(&self) -> &[InputField] {
        self.input_fields.as_deref().unwrap_or_default()
    }

    /// How the portal displays the answer of a run; as text by default.
    #[must_use]
    pub fn output_display(&self) -> OutputDisplay {
        self.output_display.unwrap_or(OutputDisplay::Text)
    }

    /// Which callers the interface admits; authenticated callers by default.
    #[must_use]
    pub fn access_mode(&self) -> AccessMode {
        self.access_mode.unwrap_or(AccessMode::Authenticated)
    }

    /// The thresholds of rollback recommendations; omitted ones have their defaults.
    #[must_use]
    pub fn rollback_thresholds(&self) -> RollbackThresholds {
        self.rollout_config.clone().unwrap_or_default()
    }

    /// A copy of the configuration in which the defaults are explicit.
    #[must_use]
    pub fn with_defaults(&self) -> Self {
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

    /// The CSS variables that the theme sets, each with its value.
    pub fn css_variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.theme.iter().flat_map(Theme::css_variables)
    }

    /// The estimated heap memory of the configuration, in bytes. Caches use this number as the weight of an entry.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let fields = self.input_fields().iter().map(InputField::heap_bytes);
        let theme = self.theme.as_ref().map_or(0, Theme::heap_bytes);
        fields.sum::<usize>().saturating_add(self.description().len()).saturating_add(theme)
    }

    /// The configuration as JSON, without defaults.
    #[must_use]
    pub fn to_document(&self) -> Value {
        // Serialization cannot fail, because the configuration consists of strings, booleans, numbers and lists.
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn parse_config(document: &Value, findings: &mut Problems) -> Option<InterfaceConfig> {
    const KNOWN: &[&str] = &[
        "presentation_mode",
        "description",
        "input_fields",
        "output_display",
        "theme",
        "rollout_config",
        "access_mode",
    ];
    let members = findings.read_object(document, "", KNOWN)?;
    let presentation_mode = findings.read_required(members, "", "presentation_mode");
    let presentation_mode = presentation_mode.and_then(|value| {
        findings.parse_wire("presentation_mode", value, PresentationMode::SPELLINGS, PresentationMode::parse)
    });
    let description = findings.read_optional(members, "description").and_then(|value| {
        let text = findings.read_text("description", value)?;
        let is_valid = is_blank_or_prose(text, MAX_DESCRIPTION_CHARS);
        findings.check("description", is_valid, ProblemKind::Text).then(|| text.to_owned())
    });
    let input_fields = findings
        .read_optional(members, "input_fields")
        .and_then(|value| field::parse_all(value, "input_fields", findings));
    let output_display = findings
        .read_optional(members, "output_display")
        .and_then(|value| findings.parse_wire("output_display", value, OutputDisplay::SPELLINGS, OutputDisplay::parse));
    let theme = findings.read_optional(members, "theme").and_then(|value| theme::parse(value, "theme", findings));
    let rollout_config = findings
        .read_optional(members, "rollout_config")
        .and_then(|value| parse_rollout_config(value, "rollout_config", findings));
    let access_mode = findings
        .read_optional(members, "access_mode")
        .and_then(|value| findings.parse_wire("access_mode", value, AccessMode::SPELLINGS, AccessMode::parse));
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

fn parse_rollout_config(value: &Value, path: &str, findings: &mut Problems) -> Option<RollbackThresholds> {
    let members = findings.read_object(value, path, &["sample_size", "error_threshold"])?;
    let sample_size = findings
        .read_optional(members, "sample_size")
        .and_then(|value| findings.read_whole(&problem::member_path(path, "sample_size"), value, 1..=1_000));
    let error_threshold = findings.read_optional(members, "error_threshold").and_then(|value| {
        let path = problem::member_path(path, "error_threshold");
        let number = findings.read_number(&path, value)?;
        let is_fraction = number.as_f64().is_some_and(|number| (0.0..=1.0).contains(&number));
        findings.check(&path, is_fraction, ProblemKind::OutOfBounds).then(|| number.clone())
    });
    Some(RollbackThresholds { sample_size, error_threshold })
}

#[cfg(test)]
mod tests;
