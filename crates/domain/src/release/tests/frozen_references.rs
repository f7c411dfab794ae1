//! Tests of frozen references.

use super::*;

fn frozen_reference(from: u128, to: u128) -> FrozenReference {
    let meant = version(AssetKind::Skill, to);
    FrozenReference {
        from_version_id: Uuid::from_u128(from).into(),
        slug: meant.asset_slug,
        label: None,
        asset_id: meant.asset_id,
        kind: AssetKind::Skill,
        asset_version_id: meant.asset_version_id,
        version_label: meant.version_label,
        checksum: meant.checksum,
    }
}

#[test]
fn approval_covers_resolved_references() {
    let bound = bind(&draft(1), AssetKind::PromptTemplate, 20).unwrap();
    let submit =
        |references| bound.submit(Ok(references), &empty_deployment(), &stamp("user:ada")).unwrap().next.clone();
    let ready = submit(vec![frozen_reference(20, 40), frozen_reference(20, 40)]);
    assert_eq!(ready.references, [frozen_reference(20, 40)], "duplicates are removed");
    let other = submit(vec![frozen_reference(20, 41)]);
    assert_ne!(ready.bindings_digest(), other.bindings_digest());
    assert_ne!(ready.bindings_digest(), submit(Vec::new()).bindings_digest());
    assert_eq!(
        submit(vec![frozen_reference(20, 40), frozen_reference(21, 41)]),
        submit(vec![frozen_reference(21, 41), frozen_reference(20, 40)])
    );
    // An approval does not apply to a release whose references are resolved to other versions.
    let approved = review(&ready, "user:bob", Verdict::Approved);
    let back = approved.reopen(&empty_deployment(), &stamp("user:ada")).unwrap().next.clone();
    assert_eq!(back.references, [], "references are unresolved in drafts");
    let again =
        back.submit(Ok(vec![frozen_reference(20, 41)]), &empty_deployment(), &stamp("user:ada")).unwrap().next.clone();
    assert_eq!(
        again.approve(APPROVAL_RULE, &empty_deployment(), &stamp("user:ops")).unwrap_err().code(),
        "approval_required"
    );
    let same =
        back.submit(Ok(vec![frozen_reference(20, 40)]), &empty_deployment(), &stamp("user:ada")).unwrap().next.clone();
    assert!(same.approve(APPROVAL_RULE, &empty_deployment(), &stamp("user:ops")).is_ok());
    let retired = approved.retire(&empty_deployment(), &stamp("user:ops")).unwrap().release.clone();
    assert_eq!(retired.references, approved.references);
    assert_eq!(retired.state.digest(), Some(&approved.bindings_digest()));
    let asked = review(&approved, "user:bob", Verdict::ChangesRequested);
    assert_eq!((asked.state.name(), asked.0.references), (StateName::Draft, Vec::new()));
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
    // The refusal reports the invalid state first, before unresolved references.
    let retired = release_in_state(StateName::Retired).0;
    let refusal = retired.submit(Err(vec![unresolved(REFERENCE_UNRESOLVED)]), &empty_deployment(), &stamp("user:ada"));
    assert_eq!(refusal.unwrap_err().code(), "invalid_transition");
}

#[test]
fn digest_belongs_to_all_states_but_draft() {
    let digest = approved(1).bindings_digest();
    for name in StateName::ALL {
        let with = State::from_parts(name, Some(digest.clone()));
        assert_eq!(with.as_ref().map(State::name), (name != StateName::Draft).then_some(name));
        assert_eq!(with.as_ref().and_then(State::digest), (name != StateName::Draft).then_some(&digest));
        let without = State::from_parts(name, None);
        let is_known = matches!(name, StateName::Draft | StateName::Retired);
        assert_eq!(without.map(|state| state.name()), is_known.then_some(name));
    }
}
