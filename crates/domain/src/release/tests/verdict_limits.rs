//! Tests of the limits on verdicts.

use super::*;

/// Approvers who exhaust the limit of verdicts cannot thereby prevent objections.
#[test]
fn full_release_accepts_one_objection_per_person() {
    let mut full = release_in_state(StateName::ReviewReady).0;
    for number in 0..review::MAX_VERDICTS_FOR_APPROVAL {
        full = review(&full, &format!("user:approver-{}", number % 10), Verdict::Approved);
    }
    let more = |release: &Release, who: &str, verdict| {
        release.review(Uuid::from_u128(31).into(), verdict, None, APPROVAL_RULE, &stamp(who)).map(|_| ())
    };
    let by = stamp("user:ops");
    assert!(full.approve(APPROVAL_RULE, &empty_deployment(), &by).is_ok());
    for who in ["user:eve", "user:approver-3"] {
        assert_eq!(more(&full, who, Verdict::Approved), Err(ReleaseRefusal::TooManyVerdicts), "{who}");
        for objection in [Verdict::Rejected, Verdict::ChangesRequested] {
            assert_eq!(more(&full, who, objection), Ok(()), "{who}");
        }
        let mut objected = review(&full, who, Verdict::Rejected);
        assert!(objected.approve(APPROVAL_RULE, &empty_deployment(), &by).is_err(), "{who}");
        for verdict in Verdict::ALL {
            assert_eq!(more(&objected, who, verdict), Err(ReleaseRefusal::TooManyVerdicts), "{who}: {verdict:?}");
        }
        // The bindings changed after these verdicts.
        let other = BindingsDigest::from_stored(format!("blake3:{}", "7".repeat(64)));
        for approval in &mut objected.0.approvals {
            approval.subject_digest = other.clone();
        }
        assert_eq!(more(&objected, who, Verdict::Rejected), Ok(()), "{who}");
        assert_eq!(more(&objected, who, Verdict::Approved), Err(ReleaseRefusal::TooManyVerdicts), "{who}");
    }
}

#[test]
fn limits_objections_once_rejection_is_final() {
    let mut full = release_in_state(StateName::ReviewReady).0;
    for number in 0..review::MAX_STORED_VERDICTS {
        let verdict = if number < review::MAX_VERDICTS_FOR_APPROVAL { Verdict::Approved } else { Verdict::Rejected };
        full = review(&full, &format!("user:reviewer-{number}"), verdict);
    }
    for verdict in Verdict::ALL {
        let more = full.review(Uuid::from_u128(31).into(), verdict, None, APPROVAL_RULE, &stamp("user:eve"));
        assert_eq!(more.map(|_| ()), Err(ReleaseRefusal::TooManyVerdicts), "{verdict:?}");
    }
    assert!(full.approve(APPROVAL_RULE, &empty_deployment(), &stamp("user:ops")).is_err());
}

#[test]
fn expired_approval_keeps_rejection_and_verdicts_are_limited() {
    let (ready, _) = release_in_state(StateName::ReviewReady);
    let by = stamp("user:ops");
    let hours = ApprovalRule { valid_hours: Some(1), ..APPROVAL_RULE };
    let refused = review(&ready, "user:eve", Verdict::Rejected);
    let mut stale = review(&refused, "user:bob", Verdict::Approved);
    assert!(stale.approve(hours, &empty_deployment(), &by).is_ok());
    stale.0.approvals[1].age_seconds = 3_600;
    let blocked = stale.approve(hours, &empty_deployment(), &by).map(|_| ());
    assert_eq!(
        blocked,
        Err(ReleaseRefusal::ApprovalRequired { counted: 0, needed: 1, refused: true, excludes_authors: false })
    );
    let mut full = ready;
    for _ in 0..review::MAX_VERDICTS_PER_PERSON {
        full = review(&full, "user:bob", Verdict::Approved);
    }
    let more =
        |who, verdict| full.review(Uuid::from_u128(31).into(), verdict, None, APPROVAL_RULE, &stamp(who)).map(|_| ());
    assert_eq!(more("user:bob", Verdict::Approved), Err(ReleaseRefusal::TooManyVerdicts));
    assert_eq!(more("user:eve", Verdict::Approved), Ok(()), "the limit applies per person");
}
