//! Pinned identities: each assigns a fixed actor name in a tenant to a subject of an issuer.

use crate::{
    clock_and_length_functions::database_now,
    database::Database,
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    schema::{identity, tenant},
};
use async_trait::async_trait;
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    access::{
        ActorRef,
        identity::{IdentityStore, NameHolder, PinnedIdentity, ReplacedFields},
    },
    audit::Fact,
    id::TenantId,
    slug::Slug,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use uuid::Uuid;

#[async_trait]
impl IdentityStore for Database {
    async fn find_tenant(&self, slug: &Slug) -> Result<Option<TenantId>, StoreError> {
        let slug = slug.as_str().to_owned();
        let find = || tenant::table.filter(tenant::slug.eq(slug.clone())).select(tenant::tenant_id);
        let found: Option<Uuid> = self.first("tenant by slug", find).await?;
        Ok(found.map(Into::into))
    }

    async fn find_tenant_slug(&self, id: TenantId) -> Result<Option<Slug>, StoreError> {
        let find = || tenant::table.find(id.uuid()).select(tenant::slug);
        let found: Option<String> = self.first("slug of a tenant", find).await?;
        found.map(|slug| require_decoded("slug", Slug::parse(&slug).ok())).transpose()
    }

    async fn name_holder(&self, scope: TenantScope, presented: &PinnedIdentity) -> Result<NameHolder, StoreError> {
        let tenant = scope.tenant().uuid();
        let of_subject = || {
            let is_subject =
                identity::issuer.eq(presented.issuer.clone()).and(identity::subject.eq(presented.subject.clone()));
            identity::table.filter(identity::tenant_id.eq(tenant).and(is_subject)).select(identity::actor)
        };
        let pinned: Option<String> = self.first("name of a subject", of_subject).await?;
        if let Some(actor) = pinned {
            return Ok(NameHolder::Subject(require_decoded("actor", ActorRef::parse(&actor).ok())?));
        }
        let actor = presented.actor.to_string();
        let of_name = || {
            identity::table
                .filter(identity::tenant_id.eq(tenant).and(identity::actor.eq(actor.clone())))
                .select(identity::actor)
        };
        let holder: Option<String> = self.first("holder of an actor name", of_name).await?;
        Ok(if holder.is_some() { NameHolder::Another } else { NameHolder::Nobody })
    }

    async fn groups_of(&self, scope: TenantScope, actor: &ActorRef) -> Result<Vec<ActorRef>, StoreError> {
        let (tenant, actor) = (scope.tenant().uuid(), actor.to_string());
        let find = || {
            identity::table
                .filter(identity::tenant_id.eq(tenant).and(identity::actor.eq(actor.clone())))
                .select(identity::groups)
        };
        let found: Option<Vec<String>> = self.first("groups of an actor", find).await?;
        let groups = found.unwrap_or_default();
        groups.iter().map(|group| require_decoded("groups", ActorRef::parse(group).ok())).collect()
    }

    async fn refresh(
        &self,
        scope: TenantScope,
        presented: &PinnedIdentity,
        replaces: ReplacedFields,
    ) -> Result<Option<PinnedIdentity>, StoreError> {
        let tenant = scope.tenant().uuid();
        let refresh = || {
            let is_subject =
                identity::issuer.eq(presented.issuer.clone()).and(identity::subject.eq(presented.subject.clone()));
            diesel::update(identity::table.filter(identity::tenant_id.eq(tenant).and(is_subject)))
                .set((
                    identity::last_seen_at.eq(database_now()),
                    replaces.groups.then(|| identity::groups.eq(names(&presented.groups))),
                    replaces.email.then(|| identity::email.eq(presented.email.clone())),
                ))
                .returning((identity::identity_id, identity::actor))
        };
        let found: Option<(Uuid, String)> = self.first("refresh of an identity", refresh).await?;
        let Some((id, actor)) = found else { return Ok(None) };
        Ok(Some(PinnedIdentity {
            identity_id: id.into(),
            actor: require_decoded("actor", ActorRef::parse(&actor).ok())?,
            ..presented.clone()
        }))
    }

    async fn commit_pin(&self, scope: TenantScope, pin: &PinnedIdentity, fact: Fact) -> Result<(), CommitError> {
        static PIN: GuardedCommit = GuardedCommit::new(
            "inserted_identity AS (
                INSERT INTO identity (tenant_id, identity_id, issuer, subject, actor, groups, email, first_seen_at,
                    last_seen_at)
                SELECT tenant_id, identity_id, issuer, subject, actor, presented_groups, presented_email, fairway_now(),
                    fairway_now()
                FROM input
                ON CONFLICT ON CONSTRAINT identity_subject_key DO NOTHING
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM inserted_identity)",
        );
        let input =
            input_of(scope, pin).with("identity_id", pin.identity_id.uuid()).with("actor", pin.actor.to_string());
        self.commit_guarded(&PIN, scope, &fact, None, input).await.map(|_| ())
    }
}

fn names(groups: &[ActorRef]) -> Vec<String> {
    groups.iter().map(ActorRef::to_string).collect()
}

fn input_of(scope: TenantScope, identity: &PinnedIdentity) -> Input<'_> {
    Input::new(scope)
        .with("issuer", identity.issuer.as_str())
        .with("subject", identity.subject.as_str())
        .with_list("presented_groups", names(&identity.groups))
        .with("presented_email", identity.email.as_deref())
}
