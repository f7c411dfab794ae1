//! The engine: asks what a run wants to know, until it has ended.

use fairway_domain::execution::{
    provider::Provider,
    run::{Run, Turn},
};

/// Runs to the end. Dropping the future stops the run within a provider's call; what it did until then stays in it.
pub(super) async fn run_to_end(run: &mut Run<'_>, provider: &dyn Provider) {
    let mut turn = run.start();
    while let Turn::Ask(call) = turn {
        let answer = provider.complete(&call).await;
        turn = run.answered(answer);
    }
}
