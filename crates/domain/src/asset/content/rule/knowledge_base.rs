//! Rules for the content of knowledge bases: the source and the access contract must be consistent.

use super::{Violation, Violations, http_url::is_http_url, is_true, text_field};
use crate::time::Timestamp;
use serde_json::Value;

pub(super) fn check(content: &Value, findings: &mut Violations) {
    match text_field(content, "source_type") {
        Some("artifact") => findings.require(content, "", "source_ref"),
        Some("http") => match content.get("source_ref") {
            None => findings.require(content, "", "source_ref"),
            Some(address) if !address.as_str().is_some_and(is_http_url) => {
                findings.add("/source_ref", Violation::AddressExpected);
            }
            Some(_) => {}
        },
        Some(_) | None => {}
    }
    if let Some(contract) = content.get("access_contract") {
        check_revocation(contract, findings);
    }
}

/// Checks that `revoked_at` is a valid time, and that it is present if and only if the contract is revoked.
fn check_revocation(contract: &Value, findings: &mut Violations) {
    let pointer = "/access_contract/revoked_at";
    let revoked_at = contract.get("revoked_at").filter(|revoked_at| !revoked_at.is_null());
    if revoked_at.is_some() != is_true(contract, "revoked") {
        findings.add(pointer, Violation::RevokedAtMismatch);
    }
    if let Some(revoked_at) = revoked_at.filter(|revoked_at| revoked_at.is_string())
        && serde_json::from_value::<Timestamp>(revoked_at.clone()).is_err()
    {
        findings.add(pointer, Violation::InvalidTime);
    }
}
