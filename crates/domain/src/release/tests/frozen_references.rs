//! Tests of frozen references.

use super::*;

fn frozen_reference(source: u128, target: u128) -> FrozenReference {
    let target_version = version(AssetKind::Skill, target);
    FrozenReference {
        from_version_id: Uuid::from_u128(source).into(),
        slug: target_version.asset_slug,
        label: None,
        asset_id: target_version.asset_id,
        kind: AssetKind::Skill,
        asset_version_id: target_version.asset_version_id,
        version_label: target_version.version_label,
        checksum: target_version.checksum,
    }
}

#[test]
fn approval_covers_resolved_references() {
    let bound = bind(&draft(1), AssetKind::PromptTemplate, 20).unwrap();
    let submit =
        |references| bound.submit(Ok(references), &empty_deployment(), &stamp("user:ada")).unwrap().next.clone();
    let ready = submit(vec![frozen_reference(20, 40), frozen_reference(20, 40)]);
    assert_eq!(ready.references, [frozen_reference(20, 40)], "duplicates are removed");
    let other_resolution = submit(vec![frozen_reference(20, 41)]);
    assert_ne!(ready.bindings_digest(), other_resolution.bindings_digest());
    assert_ne!(ready.bindings_digest(), submit(Vec::new()).bindings_digest());
    assert_eq!(
        submit(vec![frozen_reference(20, 40), frozen_reference(21, 41)]),
        submit(vec![frozen_reference(21, 41), frozen_reference(20, 40)])
    );
    // An approval does not count for a release whose references are resolved to other versions.
    let approved = review(&ready, "user:bob", ReleaseVerdict::Approved);
    let reopened = approved.reopen(&empty_deployment(), &stamp("user:ada")).unwrap().next.clone();
    assert_eq!(reopened.references, [], "references are unresolved in drafts");
    let resubmitted_with_other = reopened
        .submit(Ok(vec![frozen_reference(20, 41)]), &empty_deployment(), &stamp("user:ada"))
        .unwrap()
        .next
        .clone();
    assert_eq!(
        resubmitted_with_other
            .move_to_approved(APPROVAL_RULE, &empty_deployment(), &stamp("user:ops"))
            .unwrap_err()
            .code(),
        "approval_required"
    );
    let resubmitted_unchanged = reopened
        .submit(Ok(vec![frozen_reference(20, 40)]), &empty_deployment(), &stamp("user:ada"))
        .unwrap()
        .next
        .clone();
    assert!(resubmitted_unchanged.move_to_approved(APPROVAL_RULE, &empty_deployment(), &stamp("user:ops")).is_ok());
    let retired = approved.retire(&empty_deployment(), &stamp("user:ops")).unwrap().release.clone();
    assert_eq!(retired.references, approved.references);
    assert_eq!(retired.state.digest(), Some(&approved.bindings_digest()));
    let with_changes_requested = review(&approved, "user:bob", ReleaseVerdict::ChangesRequested);
    assert_eq!(
        (with_changes_requested.state.name(), with_changes_requested.0.references),
        (StateName::Draft, Vec::new())
    );
}

#[test]
fn unresolved_reference_blocks_submission() {
    let unresolved = |code| UnresolvedReference {
        code,
        message: "gone",
        asset_slug: Slug::parse("thing").unwrap(),
        pointer: String::new(),
        offset: None,
    };
    let refusal = draft(1).submit(
        Err(vec![unresolved("prompt_unknown_asset"), unresolved(REFERENCE_UNRESOLVED)]),
        &empty_deployment(),
        &stamp("user:ada"),
    );
    assert_eq!(refusal.unwrap_err().code(), "prompt_unknown_asset");
    // A wrong state is refused before unresolved references are reported.
    let retired = release_in_state(StateName::Retired).0;
    let refusal = retired.submit(Err(vec![unresolved(REFERENCE_UNRESOLVED)]), &empty_deployment(), &stamp("user:ada"));
    assert_eq!(refusal.unwrap_err().code(), "invalid_transition");
}

#[test]
fn digest_belongs_to_all_states_but_draft() {
    let digest = approved(1).bindings_digest();
    for name in StateName::ALL {
        let with_digest = State::from_parts(name, Some(digest.clone()));
        assert_eq!(with_digest.as_ref().map(State::name), (name != StateName::Draft).then_some(name));
        assert_eq!(with_digest.as_ref().and_then(State::digest), (name != StateName::Draft).then_some(&digest));
        let without_digest = State::from_parts(name, None);
        let is_known = matches!(name, StateName::Draft | StateName::Retired);
        assert_eq!(without_digest.map(|state| state.name()), is_known.then_some(name));
    }
}
