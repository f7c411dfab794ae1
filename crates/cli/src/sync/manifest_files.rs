//! The manifest files of a sync directory: one type for each kind of file.

use crate::{failure::Finding, untrusted_file::LocatedValue};
use fairway_domain::asset::kind::AssetKind;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;
use std::collections::BTreeMap;

/// The manifest of an asset, with the content of its newest version.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AssetManifest {
    pub(super) kind: AssetKind,
    pub(super) slug: String,
    pub(super) owner_ref: String,
    pub(super) content: Value,
    /// Sidecar texts: the file in the same folder, by the JSON pointer into the content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) texts: BTreeMap<String, String>,
}

/// The metadata file of a flow, whose text is in a separate YAML file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowMetadata {
    pub(super) owner_ref: String,
}

/// The manifest of a workload, with the field names of the API.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadManifest {
    pub(super) slug: String,
    pub(super) owner_ref: String,
    pub(super) invocation_mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interface_config: Option<Value>,
}

/// The manifest of a release, which lists the desired bindings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseManifest {
    pub(super) workload: String,
    pub(super) environment: String,
    #[serde(default = "all_lanes")]
    pub(super) target_lane: String,
    pub(super) bindings: Vec<BindingManifest>,
    /// Example inputs for readers; the server does not receive them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) example_inputs: Map<String, Value>,
}

/// A desired binding of a release: an asset in a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BindingManifest {
    pub(super) role: AssetKind,
    /// The asset's slug.
    pub(super) asset: String,
    /// The label of an existing version. Without a label, the binding means the version with the directory's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
}

fn all_lanes() -> String {
    "all".to_owned()
}

/// Deserializes a manifest. The error is a finding with the position of the invalid value.
pub(super) fn deserialize_manifest<T: DeserializeOwned>(located: &LocatedValue) -> Result<T, Finding> {
    serde_path_to_error::deserialize(&located.value).map_err(|error| {
        let pointer = error.path().iter().fold(String::new(), |pointer, segment| match segment {
            Segment::Seq { index } => format!("{pointer}/{index}"),
            Segment::Map { key } => format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { .. } | Segment::Unknown => pointer,
        });
        located.finding(&pointer, "invalid_manifest", error.inner().to_string())
    })
}
