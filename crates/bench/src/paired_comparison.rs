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
        median(self.rounds.iter().map(|(young, grown)| young.rate() / grown.rate().max(f64::MIN_POSITIVE)))
    }

    /// The minimum and the maximum slowdown of all rounds.
    pub(crate) fn slowdown_range(&self) -> (f64, f64) {
        let times = |(young, grown): &(Measurement, Measurement)| young.rate() / grown.rate().max(f64::MIN_POSITIVE);
        let of = |pick: fn(f64, f64) -> f64, from| self.rounds.iter().map(times).fold(from, pick);
        (of(f64::min, f64::INFINITY), of(f64::max, 0.0))
    }

    /// The medians of a value: in the base setup, and in the compared one.
    pub(crate) fn medians(&self, value: impl Fn(&Measurement) -> f64) -> (Option<f64>, Option<f64>) {
        (
            median(self.rounds.iter().map(|(young, _)| value(young))),
            median(self.rounds.iter().map(|(_, grown)| value(grown))),
        )
    }
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
    use crate::closed_loop_clients::tests::tally;
    use crate::cost_meter::Cost;

    #[test]
    fn slowdown_is_that_of_the_median_round() {
        let of = |requests| Measurement { tally: tally(requests), cost: Cost::default() };
        let rounds = vec![(of(100), of(100)), (of(100), of(10)), (of(120), of(100))];
        let beside = PairedComparison { scenario: Scenario::Hello, clients: 32, rounds };
        assert!((beside.median_slowdown().unwrap() - 1.2).abs() < 1e-9);
        let (least, most) = beside.slowdown_range();
        assert!((least - 1.0).abs() < 1e-9 && (most - 10.0).abs() < 1e-9);
        let requests = beside.medians(|stretch| stretch.tally.requests as f64);
        assert_eq!(requests, (Some(100.0), Some(100.0)));
        assert_eq!(PairedComparison { rounds: Vec::new(), ..beside }.median_slowdown(), None);
    }
}
