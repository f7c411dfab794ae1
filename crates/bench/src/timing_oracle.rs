//! Timing oracle: tests whether the response time of a refusal reveals that a resource exists.
//!
//! A read of a hidden resource and a read with an unused identifier have the same response. The benchmark times
//! the two reads in pairs, so that other load affects them alike.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use uuid::Uuid;

use crate::connection::{Connection, get, with_header};
use crate::fixtures::{DEFAULT_TENANT_ADMIN, Fixtures, OTHER_WORKSPACE_ADMIN, ResourceIds, WORKSPACE};
use crate::thresholds::{TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "existence";
/// The number of timed pairs.
const PAIRS: usize = 2_000;
/// Warm-up pairs, for caches and query plans.
const WARM_UP: usize = 200;
/// Maximum difference of the two medians, as a share of the lower median.
const MAX_DIFFERENCE: f64 = 0.1;

/// A kind of resource that is read by identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResourceKind {
    Workload,
    Asset,
    Release,
    Execution,
}

/// The reason why the resource is hidden from the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HiddenBy {
    /// The resource belongs to another tenant. The reader administers its own tenant.
    Tenant,
    /// The resource belongs to another workspace of the same tenant. The reader administers a different workspace.
    Workspace,
}

/// The median times of one kind of read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimingComparison {
    pub(crate) kind: ResourceKind,
    pub(crate) hidden: HiddenBy,
    /// The median for the identifier of a hidden resource.
    pub(crate) hidden_id: Duration,
    /// The median for an unused identifier.
    pub(crate) unused_id: Duration,
}

impl ResourceKind {
    pub(crate) const ALL: [ResourceKind; 4] =
        [ResourceKind::Workload, ResourceKind::Asset, ResourceKind::Release, ResourceKind::Execution];

    fn name(self) -> &'static str {
        match self {
            ResourceKind::Workload => "workload",
            ResourceKind::Asset => "asset",
            ResourceKind::Release => "release",
            ResourceKind::Execution => "execution",
        }
    }

    /// The path that reads the resource. Only the path of an asset names the reader's workspace.
    fn path(self, id: &str, workspace: &str) -> String {
        match self {
            ResourceKind::Workload => format!("/v1/workloads/{id}"),
            ResourceKind::Asset => format!("/v1/assets/{id}?workspace_id={workspace}"),
            ResourceKind::Release => format!("/v1/releases/{id}"),
            ResourceKind::Execution => format!("/v1/executions/{id}"),
        }
    }

    fn id_in(self, ids: &ResourceIds) -> &str {
        match self {
            ResourceKind::Workload => &ids.workload,
            ResourceKind::Asset => &ids.asset,
            ResourceKind::Release => &ids.release,
            ResourceKind::Execution => &ids.execution,
        }
    }
}

impl HiddenBy {
    pub(crate) const ALL: [HiddenBy; 2] = [HiddenBy::Tenant, HiddenBy::Workspace];

    fn reader(self) -> &'static str {
        match self {
            HiddenBy::Tenant => DEFAULT_TENANT_ADMIN,
            HiddenBy::Workspace => OTHER_WORKSPACE_ADMIN,
        }
    }

    fn resources(self, fixtures: &Fixtures) -> &ResourceIds {
        match self {
            HiddenBy::Tenant => &fixtures.other_tenant_resources,
            HiddenBy::Workspace => &fixtures.hidden_resources,
        }
    }

    /// The reader's workspace.
    fn workspace(self, fixtures: &Fixtures) -> &str {
        match self {
            HiddenBy::Tenant => WORKSPACE,
            HiddenBy::Workspace => &fixtures.other_workspace,
        }
    }

    fn label(self) -> &'static str {
        match self {
            HiddenBy::Tenant => "of another tenant",
            HiddenBy::Workspace => "of another workspace",
        }
    }
}

impl TimingComparison {
    /// The difference of the two medians, as a share of the lower median.
    pub(crate) fn difference(&self) -> f64 {
        let (one, other) = (self.hidden_id.as_secs_f64(), self.unused_id.as_secs_f64());
        (one - other).abs() / one.min(other).max(f64::EPSILON)
    }

    pub(crate) fn name(&self) -> String {
        comparison_name(self.kind, self.hidden)
    }
}

fn comparison_name(kind: ResourceKind, hidden: HiddenBy) -> String {
    format!("{NAME}: {} {}", kind.name(), hidden.label())
}

/// Compares all kinds of read, with one client on one connection.
///
/// # Errors
/// When a read does not respond with 404.
pub(crate) async fn measure(address: SocketAddr, fixtures: &Fixtures) -> Result<Vec<TimingComparison>> {
    let mut connection = Connection::open(address).await?;
    let mut compared = Vec::new();
    for hidden in HiddenBy::ALL {
        for kind in ResourceKind::ALL {
            compared.push(compare(&mut connection, kind, hidden, fixtures).await?);
        }
    }
    Ok(compared)
}

async fn compare(
    connection: &mut Connection,
    kind: ResourceKind,
    hidden: HiddenBy,
    fixtures: &Fixtures,
) -> Result<TimingComparison> {
    let workspace = hidden.workspace(fixtures);
    let hidden_path = kind.path(kind.id_in(hidden.resources(fixtures)), workspace);
    let (mut hidden_times, mut unused_times) = (Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS));
    for pair in 0..WARM_UP.saturating_add(PAIRS) {
        // A new UUIDv7 selects the partition of the current month, which also contains the hidden resource.
        let unused_path = kind.path(&Uuid::now_v7().to_string(), workspace);
        // The order alternates, because the second read of a pair benefits from warm caches.
        let mut reads = [(&hidden_path, &mut hidden_times), (&unused_path, &mut unused_times)];
        if pair % 2 == 1 {
            reads.reverse();
        }
        for (path, times) in reads {
            let duration = time_refusal(connection, path, hidden.reader()).await?;
            if pair >= WARM_UP {
                times.push(duration);
            }
        }
    }
    Ok(TimingComparison { kind, hidden, hidden_id: median(hidden_times), unused_id: median(unused_times) })
}

/// The time of a refused read.
async fn time_refusal(connection: &mut Connection, path: &str, reader: &str) -> Result<Duration> {
    let request = with_header(get(path), "x-actor-ref", reader);
    let since = Instant::now();
    let response = connection.send(request).await?;
    let duration = since.elapsed();
    if response.status != 404 {
        bail!("{path} as {reader} responded with {response}");
    }
    Ok(duration)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Evaluates the targets for all kinds of read. Without a measurement they count as not measured.
pub(crate) fn judge(compared: &[TimingComparison]) -> Vec<TargetResult> {
    let kinds = HiddenBy::ALL.into_iter().flat_map(|hidden| ResourceKind::ALL.map(|kind| (kind, hidden)));
    kinds
        .map(|(kind, hidden)| {
            let found = compared.iter().find(|one| one.kind == kind && one.hidden == hidden);
            TargetResult {
                name: format!("{}, medians against an unused identifier", comparison_name(kind, hidden)),
                target: "under 10 % apart".to_owned(),
                measured: found.map_or_else(|| "n/a".to_owned(), |one| format!("{:.1} %", one.difference() * 100.0)),
                verdict: found
                    .map_or(TargetVerdict::NotMeasured, |one| TargetVerdict::of(one.difference() < MAX_DIFFERENCE)),
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn comparison(kind: ResourceKind, hidden_micros: u64, unused_micros: u64) -> TimingComparison {
        TimingComparison {
            kind,
            hidden: HiddenBy::Tenant,
            hidden_id: Duration::from_micros(hidden_micros),
            unused_id: Duration::from_micros(unused_micros),
        }
    }

    #[test]
    fn judges_differences_in_both_directions() {
        let median_of = |times: &[u64]| median(times.iter().copied().map(Duration::from_micros).collect());
        assert_eq!(median_of(&[900, 100, 300]), Duration::from_micros(300));
        let judged = judge(&[
            comparison(ResourceKind::Workload, 500, 520),
            comparison(ResourceKind::Asset, 560, 500),
            comparison(ResourceKind::Release, 500, 560),
        ]);
        let verdicts: Vec<TargetVerdict> = judged.iter().map(|one| one.verdict).collect();
        assert_eq!(
            verdicts[..4],
            [TargetVerdict::Met, TargetVerdict::Missed, TargetVerdict::Missed, TargetVerdict::NotMeasured]
        );
        assert_eq!((judged.len(), judged[1].measured.as_str()), (8, "12.0 %"));
        assert!(judged[4..].iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
    }
}
