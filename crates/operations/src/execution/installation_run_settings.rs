//! The settings of the installation that apply to runs, as callers may read them.

use super::Executions;
use crate::{Failure, access::Operation};
use fairway_domain::{access::Caller, execution::dispatch::DispatchPolicy, id::WorkspaceId};
use std::time::Duration;

/// Settings of the installation that apply to all runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstallationRunSettings {
    /// Where runs execute: in the accepting process or from the queue.
    pub dispatch: DispatchPolicy,
    /// Maximum time for which a synchronous run blocks its caller.
    pub sync_wait: Duration,
    /// Maximum total time of a run.
    pub execution_deadline: Duration,
    /// Time within which a reviewer must review an answer.
    pub review_deadline: Duration,
    /// Maximum number of queued runs of one tenant.
    pub queue_cap: u32,
}

impl Executions {
    /// Returns the installation's settings for runs, after authorization in a workspace.
    ///
    /// # Errors
    /// When the caller sees no workloads at all; not found when the caller sees none in that workspace.
    pub async fn installation_run_settings(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: WorkspaceId,
    ) -> Result<InstallationRunSettings, Failure> {
        self.scope_resolver.authorize_list_of(caller, operation, Some(workspace)).await?;
        let settings = &self.settings;
        Ok(InstallationRunSettings {
            dispatch: settings.dispatch,
            sync_wait: settings.sync_wait,
            execution_deadline: settings.execution_deadline,
            review_deadline: settings.review_deadline,
            queue_cap: settings.queue_cap,
        })
    }
}
