//! What environments ask of the releases in them.

use crate::{
    Expected, Failure, Services,
    access::{Operation, gate},
    once::ATTEMPTS,
};
use fairway_domain::{
    access::Caller,
    asset::kind::AssetKind,
    environment::{Environment, EnvironmentSettings},
    id::WorkspaceId,
    release::{
        Release,
        review::{ApprovalRule, SelfApproval},
    },
    slug::Slug,
    store::{CommitError, Revision},
    tenant::TenantScope,
};

/// What a local server asks for where nobody has said anything: one approval, and anybody's.
const LOCAL: SelfApproval = SelfApproval::Allowed;

fn unsaid(environment: &Slug) -> EnvironmentSettings {
    EnvironmentSettings::unsaid(environment, LOCAL)
}

/// What an environment asks for, said or not.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What it asks for.
    pub settings: EnvironmentSettings,
    /// Counts what was said; none before.
    pub revision: Option<Revision>,
}

impl Services {
    /// What an environment asks for. It answers its defaults before anybody has said anything.
    ///
    /// # Errors
    /// Not found when the caller does not see the workspace; when they do not manage it.
    pub async fn environment_settings(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        environment: &Slug,
    ) -> Result<Asked, Failure> {
        let place = self.workspace_place(caller, workspace).await?;
        let scope = gate::enter(caller, Operation::ReadEnvironmentSettings, &place)?;
        let said = self.stores.environments.find(scope, workspace, environment).await?;
        Ok(Asked {
            settings: said.as_ref().map_or_else(|| unsaid(environment), |said| said.settings),
            revision: said.map(|said| said.revision),
        })
    }

    /// Says what an environment asks for.
    ///
    /// # Errors
    /// As [`Self::environment_settings`]; besides when the settings are not allowed, or others have said something since.
    pub async fn configure_environment(
        &self,
        caller: &Caller,
        (workspace, environment): (WorkspaceId, &Slug),
        settings: EnvironmentSettings,
        expected: &Expected,
    ) -> Result<Asked, Failure> {
        let place = self.workspace_place(caller, workspace).await?;
        let scope = gate::enter(caller, Operation::ChangeEnvironmentSettings, &place)?;
        for _ in 0..ATTEMPTS {
            let said = self.stores.environments.find(scope, workspace, environment).await?;
            match &said {
                Some(said) => expected.check(said.revision)?,
                None => expected.check_absent()?,
            }
            if let Some(said) = said.as_ref().filter(|said| said.settings == settings) {
                return Ok(Asked { settings, revision: Some(said.revision) });
            }
            let place = (workspace, environment.clone());
            let change = Environment::configure(place, said.as_ref(), settings, &self.stamp(caller))?;
            let revision = change.next.revision;
            match self.stores.environments.commit_settings(scope, change).await {
                Err(CommitError::Stale) => match expected.on_stale() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.wake.facts();
            return Ok(Asked { settings, revision: Some(revision) });
        }
        Err(Failure::Contended)
    }

    /// What an environment asks for, whoever wants to know.
    pub(crate) async fn settings_of(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        environment: &Slug,
    ) -> Result<EnvironmentSettings, Failure> {
        let said = self.stores.environments.find(scope, workspace, environment).await?;
        Ok(said.map_or_else(|| unsaid(environment), |said| said.settings))
    }

    /// What is asked of the approvals of a release: by its environment, and by the workload profile that it binds,
    /// whichever is stricter.
    pub(crate) async fn approval_rule(&self, scope: TenantScope, release: &Release) -> Result<ApprovalRule, Failure> {
        let rule = self.settings_of(scope, release.workspace_id, &release.environment).await?.rule();
        let Some(profile) = release.bindings.iter().find(|binding| binding.role == AssetKind::WorkloadProfile) else {
            return Ok(rule);
        };
        Ok(rule.and(self.profile_rule(scope, profile).await?))
    }
}
