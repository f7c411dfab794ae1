//! Reads approvals of releases.

use crate::{
    clock_and_length_functions::database_now,
    database::{Database, PageBounds, RowSizeMeasure, StoredRow},
    row::require_decoded,
    schema::{approval, approval_note},
};
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, NullableExpressionMethods as _, QueryDsl as _,
    Queryable, Selectable, SelectableHelper as _, dsl::Nullable, pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    id::{ApprovalId, ReleaseId},
    note::MAX_NOTE_CHARS,
    release::{
        BindingsDigest,
        review::{ReleaseVerdict, ReviewerVerdict},
    },
    store::{Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// An approval as stored, including its note.
#[derive(Queryable, Selectable)]
#[diesel(table_name = approval, check_for_backend(Pg))]
struct StoredApproval {
    approval_id: Uuid,
    outcome: String,
    subject_digest: String,
    approved_by: String,
    approved_at: OffsetDateTime,
    recorded_at: OffsetDateTime,
    #[diesel(select_expression = database_now())]
    #[diesel(select_expression_type = database_now)]
    read_at: OffsetDateTime,
    #[diesel(select_expression = approval_note::body.nullable())]
    #[diesel(select_expression_type = Nullable<approval_note::body>)]
    body: Option<String>,
}

impl StoredRow for StoredApproval {
    type Value = ReviewerVerdict;

    fn id(&self) -> Uuid {
        self.approval_id
    }

    fn into_value(self) -> Result<ReviewerVerdict, StoreError> {
        let age = (self.read_at - self.recorded_at).whole_seconds().max(0);
        Ok(ReviewerVerdict {
            approval_id: self.approval_id.into(),
            verdict: require_decoded("outcome", ReleaseVerdict::parse(&self.outcome))?,
            by: require_decoded("approved_by", ActorRef::parse(&self.approved_by).ok())?,
            at: Timestamp::new(self.approved_at),
            note: self.body,
            subject_digest: BindingsDigest::from_stored(self.subject_digest),
            age_seconds: age.unsigned_abs(),
        })
    }
}

const MEASURED: RowSizeMeasure =
    RowSizeMeasure { key: "approval_id", sql: "octet_length(body)", largest: MAX_NOTE_CHARS * 4 };

/// A query for the approvals of a release with their notes.
#[diesel::dsl::auto_type(no_type_alias)]
fn approvals_with_note(tenant: Uuid, release: Uuid) -> _ {
    let is_note =
        approval_note::tenant_id.eq(approval::tenant_id).and(approval_note::approval_id.eq(approval::approval_id));
    let of_release = approval::tenant_id.eq(tenant).and(approval::release_id.eq(release));
    approval::table.left_join(approval_note::table.on(is_note)).filter(of_release)
}

pub(super) async fn list(
    database: &Database,
    scope: TenantScope,
    release: ReleaseId,
    page: PageRequest,
) -> Result<Page<ReviewerVerdict>, StoreError> {
    let (tenant, release) = (scope.tenant().uuid(), release.uuid());
    let newest = |bounds: PageBounds| {
        let newest = approvals_with_note(tenant, release)
            .select(StoredApproval::as_select())
            .order(approval::approval_id.desc())
            .limit(bounds.limit)
            .offset(bounds.offset)
            .into_boxed::<'static, Pg>();
        match bounds.after {
            None => newest,
            Some(id) => newest.filter(approval::approval_id.lt(id)),
        }
    };
    let ids = || approvals_with_note(tenant, release).select(approval::approval_id);
    database.typed_measured_page("list of approvals", MEASURED, page, ids, newest).await
}

pub(super) async fn find(
    database: &Database,
    scope: TenantScope,
    release: ReleaseId,
    id: ApprovalId,
) -> Result<Option<ReviewerVerdict>, StoreError> {
    let (tenant, release, id) = (scope.tenant().uuid(), release.uuid(), id.uuid());
    let find = || {
        approvals_with_note(tenant, release).filter(approval::approval_id.eq(id)).select(StoredApproval::as_select())
    };
    database.first("approval", find).await?.map(StoredApproval::into_value).transpose()
}
