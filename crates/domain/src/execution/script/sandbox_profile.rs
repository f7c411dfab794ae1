//! The effect of a bound `sandbox_profile` on scripts: lower limits, fewer languages, and the refusal of requirements
//! that no runtime gateway meets.

use super::{Language, MAX_DURATION, MAX_MEMORY_BYTES, MAX_OUTPUT_BYTES};
use crate::number::deserialize_optional_whole;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The resource limits of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptLimits {
    /// The maximum wall-clock time, measured from the hand-over of the script.
    pub wall_time: Duration,
    /// The maximum processor time.
    pub cpu_time: Duration,
    /// The maximum memory of the interpreter, in bytes.
    pub memory_bytes: usize,
    /// The maximum total size of the standard output and of the result as JSON, in bytes.
    pub output_bytes: usize,
}

impl ScriptLimits {
    /// The limits that apply without a profile. A profile can only lower them.
    pub const MAXIMUM: Self = Self {
        wall_time: MAX_DURATION,
        cpu_time: MAX_DURATION,
        memory_bytes: MAX_MEMORY_BYTES,
        output_bytes: MAX_OUTPUT_BYTES,
    };

    /// The limits as a JSON object, which evidence records.
    #[must_use]
    pub fn as_json(&self) -> Value {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        json!({
            "wall_ms": millis(self.wall_time),
            "cpu_ms": millis(self.cpu_time),
            "memory_bytes": self.memory_bytes,
            "output_bytes": self.output_bytes,
        })
    }
}

/// The reason why a sandbox profile refuses a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SandboxRefusal {
    /// The sandbox profile does not list the script's language.
    #[error("the sandbox profile of the release does not allow this language")]
    LanguageNotAllowed,
    /// The sandbox profile requires an image or another runtime than `process`. No gateway offers these for scripts.
    #[error("the sandbox profile of the release requires a runtime or an image that is not available for scripts")]
    RuntimeUnavailable,
}

/// The parts of a bound `sandbox_profile` that apply to scripts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxProfile {
    limits: ScriptLimits,
    /// The languages that the profile allows; `None` allows every language.
    languages: Option<Vec<String>>,
    is_process_runtime: bool,
}

/// The content is not a valid sandbox profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content is not a valid sandbox profile")]
pub struct MalformedProfile;

#[derive(Deserialize)]
struct Content {
    runtime: String,
    image: Option<String>,
    image_digest: Option<String>,
    languages: Option<Vec<String>>,
    #[serde(default)]
    limits: Limits,
}

#[derive(Default, Deserialize)]
struct Limits {
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    cpu_ms: Option<u64>,
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    memory_mb: Option<u64>,
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    wall_ms: Option<u64>,
    #[serde(default, deserialize_with = "deserialize_optional_whole")]
    output_bytes: Option<u64>,
}

impl SandboxProfile {
    /// Parses content that the validation of its asset kind accepted.
    ///
    /// # Errors
    /// When the content is not a valid sandbox profile.
    pub fn parse(content: &Value) -> Result<Self, MalformedProfile> {
        let content = Content::deserialize(content).map_err(|_| MalformedProfile)?;
        let maximum = ScriptLimits::MAXIMUM;
        let time =
            |configured: Option<u64>, maximum: Duration| configured.map_or(maximum, Duration::from_millis).min(maximum);
        let bytes = |configured: Option<u64>, unit: usize, maximum: usize| {
            let configured = configured.and_then(|count| usize::try_from(count).ok()?.checked_mul(unit));
            configured.map_or(maximum, |configured| configured.min(maximum))
        };
        Ok(Self {
            limits: ScriptLimits {
                wall_time: time(content.limits.wall_ms, maximum.wall_time),
                cpu_time: time(content.limits.cpu_ms, maximum.cpu_time),
                memory_bytes: bytes(content.limits.memory_mb, 1 << 20, maximum.memory_bytes),
                output_bytes: bytes(content.limits.output_bytes, 1, maximum.output_bytes),
            },
            languages: content.languages,
            is_process_runtime: content.runtime == "process"
                && content.image.is_none()
                && content.image_digest.is_none(),
        })
    }

    /// The limits of a script in this language under the profile.
    ///
    /// # Errors
    /// If the profile does not allow the language, or requires an unavailable runtime or image.
    pub fn limits(&self, language: Language) -> Result<ScriptLimits, SandboxRefusal> {
        if !self.is_process_runtime {
            return Err(SandboxRefusal::RuntimeUnavailable);
        }
        let is_allowed = |languages: &Vec<String>| languages.iter().any(|allowed| allowed == language.as_str());
        if self.languages.as_ref().is_none_or(is_allowed) {
            Ok(self.limits)
        } else {
            Err(SandboxRefusal::LanguageNotAllowed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(changes: &Value) -> SandboxProfile {
        let mut content = json!({ "runtime": "process", "limits": {}, "network": { "mode": "none" } });
        content.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        SandboxProfile::parse(&content).unwrap()
    }

    #[test]
    fn profile_lowers_but_never_raises_limits() {
        assert_eq!(profile(&json!({})).limits(Language::Starlark), Ok(ScriptLimits::MAXIMUM));
        let limits = json!({ "limits": { "wall_ms": 200, "cpu_ms": 100.0, "memory_mb": 8, "output_bytes": 0 } });
        let lower = ScriptLimits {
            wall_time: Duration::from_millis(200),
            cpu_time: Duration::from_millis(100),
            memory_bytes: 8 << 20,
            output_bytes: 0,
        };
        assert_eq!(profile(&limits).limits(Language::JavaScript), Ok(lower));
        let limits = json!({ "limits": { "wall_ms": 86_400_000, "cpu_ms": 3_600_000, "memory_mb": 1_048_576,
            "output_bytes": 1_073_741_824, "pids": 1, "disk_mb": 0 } });
        assert_eq!(profile(&limits).limits(Language::JavaScript), Ok(ScriptLimits::MAXIMUM));
        assert_eq!(
            lower.as_json(),
            json!({ "wall_ms": 200, "cpu_ms": 100, "memory_bytes": 8 << 20, "output_bytes": 0 })
        );
    }

    #[test]
    fn refuses_unlisted_languages() {
        for (languages, starlark, javascript) in [
            (json!(["starlark"]), true, false),
            (json!(["python", "javascript"]), false, true),
            (json!([]), false, false),
        ] {
            let profile = profile(&json!({ "languages": languages }));
            for (language, is_allowed) in [(Language::Starlark, starlark), (Language::JavaScript, javascript)] {
                let expected =
                    if is_allowed { Ok(ScriptLimits::MAXIMUM) } else { Err(SandboxRefusal::LanguageNotAllowed) };
                assert_eq!(profile.limits(language), expected, "{languages}, {language:?}");
            }
        }
    }

    #[test]
    fn refuses_other_runtimes_and_images() {
        for changes in [
            json!({ "runtime": "gvisor" }),
            json!({ "runtime": "wasm" }),
            json!({ "image": "a" }),
            json!({ "image_digest": "sha256:0" }),
        ] {
            assert_eq!(
                profile(&changes).limits(Language::Starlark),
                Err(SandboxRefusal::RuntimeUnavailable),
                "{changes}"
            );
        }
        assert!(SandboxProfile::parse(&json!({ "limits": {} })).is_err());
    }
}
