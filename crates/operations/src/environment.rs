//! Settings of environments: the requirements that releases must meet there.

use crate::{
    Failure, Precondition, Settings, Stores,
    access::{IdentityMode, Operation, ScopeResolver, authorize},
    commit_context::CommitContext,
    idempotency::MAX_ATTEMPTS,
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::Caller,
    environment::{Environment, EnvironmentSettings, EnvironmentStore},
    id::WorkspaceId,
    release::review::SelfApproval,
    slug::Slug,
    store::{CommitError, Revision},
    tenant::TenantScope,
};
use std::sync::Arc;

/// The settings that apply to an environment: the configured ones, or else the defaults.
#[derive(Clone, Debug)]
pub struct EffectiveSettings {
    /// The requirements for releases in the environment.
    pub settings: EnvironmentSettings,
    /// Revision of the configured settings; `None` for the defaults.
    pub revision: Option<Revision>,
}

/// Reads and changes the settings of environments.
#[derive(Clone)]
pub struct Environments {
    context: CommitContext,
    environment_store: Arc<dyn EnvironmentStore>,
    scope_resolver: Arc<ScopeResolver>,
    settings: Arc<Settings>,
}

impl Environments {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            environment_store: Arc::clone(&stores.environments),
            scope_resolver: Arc::clone(&common.scope_resolver),
            settings: Arc::clone(&shared.settings),
        }
    }

    /// Returns the requirements of an environment that is not configured. In the `dev` environment of a local server,
    /// which has a single user, authors may approve their own releases.
    fn default_settings(&self, environment: &Slug) -> EnvironmentSettings {
        let self_approval_in_dev = match self.settings.identity {
            IdentityMode::Local => SelfApproval::Allowed,
            IdentityMode::Oidc => SelfApproval::Refused,
        };
        EnvironmentSettings::defaults_for(environment, self_approval_in_dev)
    }
}

impl Environments {
    /// Returns the configured settings of an environment, or else the defaults.
    ///
    /// # Errors
    /// Not found when the caller does not see the workspace; forbidden when the caller does not manage the workspace.
    pub async fn environment_settings(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        environment: &Slug,
    ) -> Result<EffectiveSettings, Failure> {
        let position = self.scope_resolver.workspace_position(caller, workspace).await?;
        let scope = authorize::authorize(caller, Operation::ReadEnvironmentSettings, &position)?;
        let stored = self.environment_store.find_settings(scope, workspace, environment).await?;
        Ok(EffectiveSettings {
            settings: stored.as_ref().map_or_else(|| self.default_settings(environment), |stored| stored.settings),
            revision: stored.map(|stored| stored.revision),
        })
    }

    /// Configures an environment.
    ///
    /// # Errors
    /// As [`Self::environment_settings`]; also when the settings are invalid or changed concurrently.
    pub async fn configure_environment(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        environment: &Slug,
        settings: EnvironmentSettings,
        expected: &Precondition,
    ) -> Result<EffectiveSettings, Failure> {
        let position = self.scope_resolver.workspace_position(caller, workspace).await?;
        let scope = authorize::authorize(caller, Operation::ChangeEnvironmentSettings, &position)?;
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.environment_store.find_settings(scope, workspace, environment).await?;
            match &stored {
                Some(stored) => expected.check(stored.revision)?,
                None => expected.check_absent()?,
            }
            if let Some(stored) = stored.as_ref().filter(|stored| stored.settings == settings) {
                return Ok(EffectiveSettings { settings, revision: Some(stored.revision) });
            }
            let change = Environment::configure(
                workspace,
                environment.clone(),
                stored.as_ref(),
                settings,
                &self.context.stamp(caller),
            )?;
            let revision = change.next.revision;
            match self.environment_store.commit_settings(scope, change).await {
                Err(CommitError::Stale) => match expected.stale_failure() {
                    Some(failure) => return Err(failure),
                    None => continue,
                },
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(EffectiveSettings { settings, revision: Some(revision) });
        }
        Err(Failure::Contended)
    }

    /// Returns the settings that apply to an environment, without authorizing a caller.
    pub(crate) async fn settings_of(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        environment: &Slug,
    ) -> Result<EnvironmentSettings, Failure> {
        let stored = self.environment_store.find_settings(scope, workspace, environment).await?;
        Ok(stored.map_or_else(|| self.default_settings(environment), |stored| stored.settings))
    }
}
