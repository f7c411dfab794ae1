//! Tests of the maximum number of verdicts.

use super::*;

/// Approvers who use up the limit of verdicts cannot prevent objections thereby.
#[test]
fn full_release_accepts_one_objection_per_person() {
    let mut full_release = release_in_state(StateName::ReviewReady).0;
    for number in 0..review::VERDICT_SOFT_LIMIT {
        full_release = review(&full_release, &format!("user:approver-{}", number % 10), ReleaseVerdict::Approved);
    }
    let add_verdict = |release: &Release, reviewer: &str, verdict| {
        release.record_verdict(Uuid::from_u128(31).into(), verdict, None, APPROVAL_RULE, &stamp(reviewer)).map(|_| ())
    };
    let ops_stamp = stamp("user:ops");
    assert!(full_release.move_to_approved(APPROVAL_RULE, &empty_deployment(), &ops_stamp).is_ok());
    for reviewer in ["user:eve", "user:approver-3"] {
        assert_eq!(
            add_verdict(&full_release, reviewer, ReleaseVerdict::Approved),
            Err(ReleaseRefusal::TooManyVerdicts),
            "{reviewer}"
        );
        for objection in [ReleaseVerdict::Rejected, ReleaseVerdict::ChangesRequested] {
            assert_eq!(add_verdict(&full_release, reviewer, objection), Ok(()), "{reviewer}");
        }
        let mut rejected = review(&full_release, reviewer, ReleaseVerdict::Rejected);
        assert!(rejected.move_to_approved(APPROVAL_RULE, &empty_deployment(), &ops_stamp).is_err(), "{reviewer}");
        for verdict in ReleaseVerdict::ALL {
            assert_eq!(
                add_verdict(&rejected, reviewer, verdict),
                Err(ReleaseRefusal::TooManyVerdicts),
                "{reviewer}: {verdict:?}"
            );
        }
        // The bindings changed after these verdicts, so the verdicts apply to another digest.
        let other_digest = BindingsDigest::from_stored(format!("blake3:{}", "7".repeat(64)));
        for approval in &mut rejected.0.approvals {
            approval.subject_digest = other_digest.clone();
        }
        assert_eq!(add_verdict(&rejected, reviewer, ReleaseVerdict::Rejected), Ok(()), "{reviewer}");
        assert_eq!(
            add_verdict(&rejected, reviewer, ReleaseVerdict::Approved),
            Err(ReleaseRefusal::TooManyVerdicts),
            "{reviewer}"
        );
    }
}

#[test]
fn limits_objections_once_rejection_is_final() {
    let mut full_release = release_in_state(StateName::ReviewReady).0;
    for number in 0..review::MAX_STORED_VERDICTS {
        let verdict =
            if number < review::VERDICT_SOFT_LIMIT { ReleaseVerdict::Approved } else { ReleaseVerdict::Rejected };
        full_release = review(&full_release, &format!("user:reviewer-{number}"), verdict);
    }
    for verdict in ReleaseVerdict::ALL {
        let result =
            full_release.record_verdict(Uuid::from_u128(31).into(), verdict, None, APPROVAL_RULE, &stamp("user:eve"));
        assert_eq!(result.map(|_| ()), Err(ReleaseRefusal::TooManyVerdicts), "{verdict:?}");
    }
    assert!(full_release.move_to_approved(APPROVAL_RULE, &empty_deployment(), &stamp("user:ops")).is_err());
}

#[test]
fn expired_approval_keeps_rejection_and_verdicts_are_limited() {
    let (ready, _) = release_in_state(StateName::ReviewReady);
    let ops_stamp = stamp("user:ops");
    let one_hour_rule = ApprovalRule { valid_hours: Some(1), ..APPROVAL_RULE };
    let rejected = review(&ready, "user:eve", ReleaseVerdict::Rejected);
    let mut with_expired_approval = review(&rejected, "user:bob", ReleaseVerdict::Approved);
    assert!(with_expired_approval.move_to_approved(one_hour_rule, &empty_deployment(), &ops_stamp).is_ok());
    with_expired_approval.0.approvals[1].age_seconds = 3_600;
    let blocked = with_expired_approval.move_to_approved(one_hour_rule, &empty_deployment(), &ops_stamp).map(|_| ());
    assert_eq!(
        blocked,
        Err(ReleaseRefusal::ApprovalRequired { counted: 0, needed: 1, refused: true, excludes_authors: false })
    );
    let mut full_release = ready;
    for _ in 0..review::MAX_VERDICTS_PER_PERSON {
        full_release = review(&full_release, "user:bob", ReleaseVerdict::Approved);
    }
    let add_verdict = |reviewer, verdict| {
        full_release
            .record_verdict(Uuid::from_u128(31).into(), verdict, None, APPROVAL_RULE, &stamp(reviewer))
            .map(|_| ())
    };
    assert_eq!(add_verdict("user:bob", ReleaseVerdict::Approved), Err(ReleaseRefusal::TooManyVerdicts));
    assert_eq!(add_verdict("user:eve", ReleaseVerdict::Approved), Ok(()), "the limit applies per person");
}
