//! The payload of a run request, and the rights and inputs that it requires.

use super::run_access;
use crate::{
    Failure,
    access::{Operation, authorize},
    share_link::VerifiedLink,
    workload::position_of,
};
use fairway_domain::{
    access::Caller, execution::script::Script, id::WorkspaceId, tenant::TenantScope, workload::Workload,
};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The payload of a run request: inputs for the steps of a release, or a script.
#[derive(Clone, Debug)]
pub enum RunPayload {
    /// Input values of the release's steps, by field name.
    Inputs(Map<String, Value>),
    /// Form input for a workload that is called as a tool. A workload without an input form is reported as not found.
    Form(Map<String, Value>),
    /// Code that the runtime gateway executes instead of the release's steps.
    Script {
        /// The code and its language.
        script: Script,
        /// The workspace to which the workload must belong.
        workspace: WorkspaceId,
    },
}

impl RunPayload {
    /// Authorizes a caller to see the workload that this payload would run.
    pub(super) fn authorize_workload_view(
        &self,
        caller: &Caller,
        presented_link: Option<&VerifiedLink>,
        workload: &Workload,
    ) -> Result<TenantScope, Failure> {
        match self {
            Self::Form(_) if workload.interface_config.is_none() => Err(Failure::NotFound),
            Self::Inputs(_) | Self::Form(_) => {
                run_access::authorize_interface_view(caller, presented_link, workload, Operation::ReadWorkload)
            }
            Self::Script { workspace, .. } if *workspace != workload.workspace_id => Err(Failure::NotFound),
            Self::Script { .. } => {
                authorize::authorize(caller, Operation::ReadWorkload, &position_of(caller, workload))
            }
        }
    }

    /// Whether the run executes the steps of its plan; a script run does not.
    pub(super) const fn has_steps(&self) -> bool {
        match self {
            Self::Inputs(_) | Self::Form(_) => true,
            Self::Script { .. } => false,
        }
    }

    /// Authorizes a caller to run a workload that it sees. Share links and public access do not allow scripts.
    pub(super) fn authorize_run(
        &self,
        caller: &Caller,
        presented_link: Option<&VerifiedLink>,
        workload: &Workload,
    ) -> Result<(), Failure> {
        match self {
            Self::Inputs(_) | Self::Form(_) => run_access::authorize_run(caller, presented_link, workload),
            Self::Script { .. } => {
                authorize::authorize(caller, Operation::RunCode, &position_of(caller, workload)).map(|_| ())
            }
        }
    }

    /// Returns the run's inputs, validated against the input form of the workload if it has one. The inputs of a
    /// script are not validated.
    pub(super) fn inputs(&self, workload: &Workload) -> Result<Cow<'_, Map<String, Value>>, Failure> {
        match (self, &workload.interface_config) {
            (Self::Inputs(inputs) | Self::Form(inputs), Some(interface)) => {
                interface.effective_inputs(inputs).map(Cow::Owned).map_err(Failure::InvalidInputs)
            }
            (Self::Inputs(inputs) | Self::Form(inputs), None) => Ok(Cow::Borrowed(inputs)),
            (Self::Script { script, .. }, _) => Ok(Cow::Owned(script.inputs())),
        }
    }
}
