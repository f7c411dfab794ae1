//! Measures the time from process start to the first response, on a migrated database.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::environment::start_processes::{FirstResponseTimes, start_server};
use crate::environment::{DATABASE, Postgres, RunDirectory};

/// The number of measured starts.
const STARTS: usize = 5;

/// Times of cold starts, measured from spawning the process.
pub(crate) struct ColdStart {
    /// The first start, which migrated an empty database.
    pub(crate) migrating: FirstResponseTimes,
    /// The starts on the migrated database.
    pub(crate) starts: Vec<FirstResponseTimes>,
}

/// The minimum and the median of several start times.
pub(crate) struct MinAndMedian {
    pub(crate) min: Duration,
    pub(crate) median: Duration,
}

/// Starts and stops the server once on an empty database, and then several times on the migrated database.
pub(crate) async fn measure(run_directory: &RunDirectory, postgres: &Postgres, program: &Path) -> Result<ColdStart> {
    let (mut server, migrating) = start_server(run_directory, postgres, DATABASE, program).await?;
    server.stop().await?;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let (mut server, first) = start_server(run_directory, postgres, DATABASE, program).await?;
        server.stop().await?;
        starts.push(first);
    }
    Ok(ColdStart { migrating, starts })
}

impl ColdStart {
    /// Time until the health check succeeds.
    pub(crate) fn time_to_health(&self) -> MinAndMedian {
        min_and_median(self.starts.iter().map(|first| first.health))
    }

    /// Time until a read from the database succeeds.
    pub(crate) fn time_to_first_read(&self) -> MinAndMedian {
        min_and_median(self.starts.iter().map(|first| first.read))
    }
}

fn min_and_median(times: impl Iterator<Item = Duration>) -> MinAndMedian {
    let mut sorted: Vec<Duration> = times.collect();
    sorted.sort_unstable();
    let min = sorted.first().copied().unwrap_or_default();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    MinAndMedian { min, median }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_minimum_and_median() {
        let times = [50, 10, 30, 20, 40].map(Duration::from_millis);
        let start_times = min_and_median(times.into_iter());
        assert_eq!((start_times.min.as_millis(), start_times.median.as_millis()), (10, 30));
    }
}
