//! `fairway-server audit verify`: audits whole logs against checkpoints that were kept outside the database.

use crate::{
    compose::{Adapters, Process},
    config::Settings,
    serve::OpenDatabase,
};
use anyhow::Context as _;
use fairway_domain::{
    id::TenantId,
    transparency_log::{LogDefect, SignedNote, VerifierKey},
};
use fairway_operations::transparency_log::{AuditEvidence, AuditFinding, AuditedLog, LogAccessError};
use std::{fs, path::Path};
use uuid::Uuid;

/// The logs to audit, and what to compare them with.
#[derive(Clone, Debug, Default)]
pub struct AuditScope {
    /// The tenant; without one all tenants.
    pub tenant: Option<TenantId>,
    /// What the operator brings.
    pub evidence: AuditEvidence,
}

impl AuditScope {
    /// Reads the arguments of the command. A checkpoint names its tenant.
    ///
    /// # Errors
    /// When a key or the file cannot be read, or the file holds no checkpoint of a tenant's log.
    pub fn read(tenant: Option<Uuid>, checkpoint: Option<&Path>, keys: &[String]) -> anyhow::Result<Self> {
        let parse = |text: &String| VerifierKey::parse(text).context("a key cannot be read");
        let keys = keys.iter().map(parse).collect::<Result<_, _>>()?;
        let Some(path) = checkpoint else {
            let evidence = AuditEvidence { checkpoint: None, keys };
            return Ok(Self { tenant: tenant.map(TenantId::from), evidence });
        };
        let note = fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let parsed = SignedNote::parse(&note).context("the file holds no checkpoint")?;
        let origin = parsed.text().lines().next().and_then(|origin| origin.rsplit('/').next()?.parse().ok());
        let named: Uuid = origin.context("the checkpoint names no tenant")?;
        if tenant.is_some_and(|tenant| tenant != named) {
            anyhow::bail!("the checkpoint is of another tenant");
        }
        Ok(Self { tenant: Some(named.into()), evidence: AuditEvidence { checkpoint: Some(note), keys } })
    }
}

/// The audit of the log of a tenant.
#[derive(Debug)]
pub struct TenantAudit {
    /// The tenant.
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

/// Audits logs, with or without a running server. The failure of one log does not end the audit of the others, because
/// whoever changes a row of one log must not hide the findings in another.
///
/// # Errors
/// When the database cannot be opened, or the tenants cannot be listed.
pub async fn audit_logs(settings: &Settings, scope: &AuditScope) -> anyhow::Result<Vec<TenantAudit>> {
    let database = OpenDatabase::open_existing(settings).await?;
    let audited = async {
        let process = Process::new(settings, database.url.clone(), Adapters::of(settings)?)?;
        let auditor = &process.services().log_auditor;
        let tenants = match scope.tenant {
            Some(tenant) => [tenant].into(),
            None => auditor.tenants().await?,
        };
        let mut audited = Vec::new();
        for tenant in tenants {
            let result = auditor.audit(tenant, &scope.evidence).await;
            audited.push(TenantAudit { tenant, result });
        }
        anyhow::Ok(audited)
    };
    let audited = audited.await;
    database.close().await?;
    audited
}

/// One sentence about the audit of a log.
#[must_use]
pub fn describe(TenantAudit { tenant, result }: &TenantAudit) -> String {
    match result {
        Ok(log) => format!("tenant {tenant}: {}", describe_log(log)),
        Err(error) => {
            let messages: Vec<String> = anyhow::Chain::new(error).map(ToString::to_string).collect();
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
            format!("first bad index {first}: {}", cause.as_str())
        }
        Some(AuditFinding::Entry(LogDefect { first, last, cause })) => {
            format!("first bad index from {first} to {last}: {}", cause.as_str())
        }
        Some(AuditFinding::ForeignCheckpoint) => "it is no checkpoint of this log".to_owned(),
        Some(AuditFinding::UnsignedCheckpoint) => {
            "no present key of the log signed it; give a retired one with --key".to_owned()
        }
    };
    format!("{size} entries, {checkpoint}: {result}")
}
