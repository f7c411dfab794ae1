//! The bindings digest, to which the verdicts of reviewers apply.

use super::{Release, frozen_reference::FrozenReference};
use std::fmt::Write as _;

/// The BLAKE3 digest of a release's bindings, resolved references and target. A verdict of a reviewer applies to one
/// digest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BindingsDigest(String);

impl BindingsDigest {
    /// Creates a bindings digest from its stored text.
    #[must_use]
    pub const fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The digest as text: `blake3:` and 64 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Release {
    /// The digest of the current bindings, references and target.
    #[must_use]
    pub fn bindings_digest(&self) -> BindingsDigest {
        BindingsDigest(format!("blake3:{}", blake3::hash(self.bindings_digest_input().as_bytes()).to_hex()))
    }

    /// The text whose BLAKE3 digest is [`Self::bindings_digest`].
    #[must_use]
    pub fn bindings_digest_input(&self) -> String {
        let mut lines: Vec<String> = self
            .bindings
            .iter()
            .map(|binding| {
                format!("{} {} {}", binding.role.as_str(), binding.asset_version_id, binding.checksum.as_str())
            })
            .collect();
        lines.extend(self.references.iter().map(FrozenReference::digest_line));
        lines.sort_unstable();
        let mut text =
            format!("fairway.release.v1\n{}\n{}\n{}\n", self.workload_id, self.environment, self.target_lane.as_str());
        if let Some(bundle) = self.policy_bundle_id {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "policy_bundle {bundle}");
        }
        text.push_str(&lines.join("\n"));
        text
    }
}
