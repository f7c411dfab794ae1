//! The details of facts that auditors read over HTTP.
//!
//! The detail of most kinds is withheld, because it can name keys, accounts and people that an auditor of one workspace
//! may not see. The detail of the kinds in `DISCLOSED` contains only codes, identifiers and digests, and auditors
//! need it to compare a record with the log.

use super::FactKind;
use serde_json::{Map, Value};

/// The kinds whose detail is disclosed, each with the members that are disclosed.
const DISCLOSED: [(FactKind, &[&str]); 2] = [
    (FactKind::NotificationSuppressed, &["category", "digest", "event_id", "reason_code", "workload_id"]),
    (FactKind::AnnouncementMade, &["roles", "text_digest", "workspaces"]),
];

/// Whether auditors may read a part of the details of this kind.
#[must_use]
pub fn is_detail_disclosed(kind: &str) -> bool {
    DISCLOSED.iter().any(|(disclosed, _)| disclosed.as_str() == kind)
}

/// The part of a fact's detail that auditors may read; `None` if the kind's detail is withheld. Members that are not
/// listed for the kind are removed.
#[must_use]
pub fn disclosed_detail(kind: &str, mut detail: Map<String, Value>) -> Option<Map<String, Value>> {
    let (_, members) = DISCLOSED.iter().find(|(disclosed, _)| disclosed.as_str() == kind)?;
    detail.retain(|name, _| members.contains(&name.as_str()));
    Some(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn withholds_all_but_the_listed_members_of_the_listed_kinds() {
        let detail = || {
            let Value::Object(detail) = json!({ "digest": "sha256:00", "recipient": "user:ada" }) else { panic!() };
            detail
        };
        let disclosed = disclosed_detail("notification.suppressed", detail()).unwrap();
        assert_eq!(Value::Object(disclosed), json!({ "digest": "sha256:00" }));
        assert!(is_detail_disclosed("notification.suppressed"));
        for kind in ["notification.marked", "execution.denied", "notification.suppressed2", ""] {
            assert_eq!((disclosed_detail(kind, detail()), is_detail_disclosed(kind)), (None, false), "{kind}");
        }
    }
}
