//! Paired comparison: one scenario is measured in two setups, such as a small and a large database, in several rounds.
//!
//! Other load on the machine changes within seconds, so it affects both measurements of a round. The median round
//! removes outliers that affect only one of the two.

use crate::benchmark_run::Measurement;
use crate::scenario::Scenario;

/// Number of rounds for each scenario. An odd number has a median.
pub(crate) const ROUNDS: u32 = 7;

/// A scenario measured in two setups, once in each round.
pub(crate) struct PairedComparison {
    pub(crate) scenario: Scenario,
    pub(crate) clients: usize,
    /// Pairs of measurements: in the base setup (the small database, or local mode), and in the compared one.
    pub(crate) rounds: Vec<(Measurement, Measurement)>,
}

impl PairedComparison {
    /// The median slowdown in the compared setup. Clients run in a closed loop, so half the request
    /// rate means twice the time.
    pub(crate) fn median_slowdown(&self) -> Option<f64> {
        median(self.rounds.iter().map(slowdown))
    }

    /// The minimum and the maximum slowdown of all rounds.
    pub(crate) fn slowdown_range(&self) -> (f64, f64) {
        let fold = |pick: fn(f64, f64) -> f64, start| self.rounds.iter().map(slowdown).fold(start, pick);
        (fold(f64::min, f64::INFINITY), fold(f64::max, 0.0))
    }

    /// The medians of a value: in the base setup, and in the compared one.
    pub(crate) fn medians(&self, value: impl Fn(&Measurement) -> f64) -> (Option<f64>, Option<f64>) {
        (
            median(self.rounds.iter().map(|(base, _)| value(base))),
            median(self.rounds.iter().map(|(_, compared)| value(compared))),
        )
    }
}

/// The slowdown in one round: the request rate in the base setup, divided by the rate in the compared one.
fn slowdown((base, compared): &(Measurement, Measurement)) -> f64 {
    base.rate() / compared.rate().max(f64::MIN_POSITIVE)
}

/// The median; `None` without values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_loop_clients::tests::load_result;
    use crate::cost_meter::Cost;

    #[test]
    fn slowdown_is_that_of_the_median_round() {
        let measurement = |requests| Measurement { load: load_result(requests), cost: Cost::default() };
        let rounds = [(100, 100), (100, 10), (120, 100)]
            .map(|(base, compared)| (measurement(base), measurement(compared)))
            .into();
        let comparison = PairedComparison { scenario: Scenario::Hello, clients: 32, rounds };
        assert!((comparison.median_slowdown().unwrap() - 1.2).abs() < 1e-9);
        let (min, max) = comparison.slowdown_range();
        assert!((min - 1.0).abs() < 1e-9 && (max - 10.0).abs() < 1e-9);
        let requests = comparison.medians(|measurement| measurement.load.requests as f64);
        assert_eq!(requests, (Some(100.0), Some(100.0)));
        assert_eq!(PairedComparison { rounds: Vec::new(), ..comparison }.median_slowdown(), None);
    }
}
