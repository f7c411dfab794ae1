//! `fairway-server audit verify`: audits whole logs against checkpoints that were kept outside the database.

use crate::{
    compose::{AdapterError, Adapters, ComposeError, Process},
    config::Settings,
    serve::{DatabaseError, ResolvedDatabase},
};
use fairway_domain::{
    id::TenantId,
    transparency_log::{LogDefect, NoteRefusal, SignedNote, VerifierKey, VerifierKeyRefusal},
};
use fairway_operations::transparency_log::{AuditFinding, AuditedLog, LogAccessError, LogAuditInputs};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// The logs to audit, and the evidence for the comparison.
#[derive(Clone, Debug, Default)]
pub struct AuditScope {
    /// The tenant whose log is audited; `None` for all tenants.
    pub tenant: Option<TenantId>,
    /// The checkpoint and the keys that the operator provides.
    pub evidence: LogAuditInputs,
}

/// Failure to audit logs with `fairway-server audit verify`.
#[derive(Debug, thiserror::Error)]
pub enum LogAuditError {
    /// An argument is not a public key.
    #[error("a key cannot be read")]
    Key(#[source] VerifierKeyRefusal),
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file contains no checkpoint.
    #[error("the file holds no checkpoint")]
    NoCheckpoint(#[source] NoteRefusal),
    /// The origin of the checkpoint contains no tenant.
    #[error("the checkpoint names no tenant")]
    NoTenant,
    /// The checkpoint belongs to another tenant than the requested one.
    #[error("the checkpoint is of another tenant")]
    OtherTenant,
    /// The database cannot be opened or stopped.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// An adapter cannot be created.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The process cannot be composed.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// The tenants cannot be listed.
    #[error(transparent)]
    Tenants(#[from] LogAccessError),
}

impl AuditScope {
    /// Reads the arguments of the command. With a checkpoint, only the log of its tenant is audited.
    ///
    /// # Errors
    /// When a key or the file cannot be read, or the file does not contain a checkpoint of a tenant's log.
    pub fn read(tenant: Option<Uuid>, checkpoint: Option<&Path>, keys: &[String]) -> Result<Self, LogAuditError> {
        let parse = |text: &String| VerifierKey::parse(text).map_err(LogAuditError::Key);
        let keys = keys.iter().map(parse).collect::<Result<_, _>>()?;
        let Some(path) = checkpoint else {
            let evidence = LogAuditInputs { checkpoint: None, keys };
            return Ok(Self { tenant: tenant.map(TenantId::from), evidence });
        };
        let note = fs::read(path).map_err(|source| LogAuditError::File { path: path.to_owned(), source })?;
        let parsed = SignedNote::parse(&note).map_err(LogAuditError::NoCheckpoint)?;
        let origin = parsed.text().lines().next().and_then(|origin| origin.rsplit('/').next()?.parse().ok());
        let checkpoint_tenant: Uuid = origin.ok_or(LogAuditError::NoTenant)?;
        if tenant.is_some_and(|tenant| tenant != checkpoint_tenant) {
            return Err(LogAuditError::OtherTenant);
        }
        Ok(Self { tenant: Some(checkpoint_tenant.into()), evidence: LogAuditInputs { checkpoint: Some(note), keys } })
    }
}

/// The audit of the log of a tenant.
#[derive(Debug)]
pub struct TenantAudit {
    /// The tenant whose log was audited.
    pub tenant: TenantId,
    /// The result; an error if the log was not read to its end.
    pub result: Result<AuditedLog, LogAccessError>,
}

impl TenantAudit {
    /// Whether the log was read to its end without a finding.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        self.result.as_ref().is_ok_and(|log| log.finding.is_none())
    }
}

/// Audits logs, with or without a running server. The failure of one log does not end the audit of the others.
/// Otherwise a manipulated row of one log could hide the findings in another log.
///
/// # Errors
/// When the database cannot be found or started, or the tenants cannot be listed.
pub async fn audit_logs(settings: &Settings, scope: &AuditScope) -> Result<Vec<TenantAudit>, LogAuditError> {
    let database = ResolvedDatabase::join_or_start_existing(settings).await?;
    let audits = async {
        let process = Process::new(settings, database.url.clone(), Adapters::of(settings)?)?;
        let auditor = &process.background_pool_services().log_auditor;
        let tenants = match scope.tenant {
            Some(tenant) => [tenant].into(),
            None => auditor.tenants().await?,
        };
        let mut audits = Vec::new();
        for tenant in tenants {
            let result = auditor.audit(tenant, &scope.evidence).await;
            audits.push(TenantAudit { tenant, result });
        }
        Ok::<_, LogAuditError>(audits)
    };
    let audits = audits.await;
    database.stop_managed_server().await?;
    audits
}

/// One sentence about the audit of a log.
#[must_use]
pub fn describe(TenantAudit { tenant, result }: &TenantAudit) -> String {
    match result {
        Ok(log) => format!("tenant {tenant}: {}", describe_log(log)),
        Err(error) => {
            let mut messages = vec![error.to_string()];
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                messages.push(cause.to_string());
                source = cause.source();
            }
            format!("tenant {tenant}: not read to its end ({}): {}", error.code(), messages.join(": "))
        }
    }
}

fn describe_log(AuditedLog { size, covered, finding }: &AuditedLog) -> String {
    let checkpoint = match covered {
        Some(covered) => format!("a checkpoint over {covered}"),
        None if finding.is_none_or(|finding| matches!(finding, AuditFinding::Entry(_))) => {
            "no checkpoint outside the database".to_owned()
        }
        None => "a checkpoint that does not count".to_owned(),
    };
    let result = match finding {
        None => "nothing is wrong".to_owned(),
        Some(AuditFinding::Entry(LogDefect { first, last, cause })) if first == last => {
            format!("first bad index {first}: {}", cause.description())
        }
        Some(AuditFinding::Entry(LogDefect { first, last, cause })) => {
            format!("first bad index from {first} to {last}: {}", cause.description())
        }
        Some(AuditFinding::ForeignCheckpoint) => "it is no checkpoint of this log".to_owned(),
        Some(AuditFinding::UnsignedCheckpoint) => {
            "no present key of the log signed it; give a retired one with --key".to_owned()
        }
    };
    format!("{size} entries, {checkpoint}: {result}")
}
