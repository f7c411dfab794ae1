//! How long a server takes to its first answer on a database that is migrated already.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::stage::{DATABASE, FirstAnswers, Home, Postgres, start_server};

/// Starts that are measured.
const STARTS: usize = 5;

/// Cold starts, measured from spawning the process.
pub(crate) struct ColdStart {
    /// The one that also migrated an empty database.
    pub(crate) migrating: FirstAnswers,
    /// The others, on the migrated database.
    pub(crate) starts: Vec<FirstAnswers>,
}

/// Best and median.
pub(crate) struct Spread {
    pub(crate) best: Duration,
    pub(crate) median: Duration,
}

/// Starts the server once on the empty database and then a few times on the migrated one; each is stopped again.
pub(crate) async fn measure(home: &Home, postgres: &Postgres, program: &Path) -> Result<ColdStart> {
    let (mut server, migrating) = start_server(home, (postgres, DATABASE), program).await?;
    server.stop().await?;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let (mut server, first) = start_server(home, (postgres, DATABASE), program).await?;
        server.stop().await?;
        starts.push(first);
    }
    Ok(ColdStart { migrating, starts })
}

impl ColdStart {
    /// Until the process says that it is well.
    pub(crate) fn health(&self) -> Spread {
        spread(self.starts.iter().map(|first| first.health))
    }

    /// Until a read that needs the database is answered.
    pub(crate) fn read(&self) -> Spread {
        spread(self.starts.iter().map(|first| first.read))
    }
}

fn spread(times: impl Iterator<Item = Duration>) -> Spread {
    let mut sorted: Vec<Duration> = times.collect();
    sorted.sort_unstable();
    let best = sorted.first().copied().unwrap_or_default();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    Spread { best, median }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        let times = [50, 10, 30, 20, 40].map(Duration::from_millis);
        let spread = spread(times.into_iter());
        assert_eq!((spread.best.as_millis(), spread.median.as_millis()), (10, 30));
    }
}
