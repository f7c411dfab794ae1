//! One statement for everybody who asks at the same time.
//!
//! While a statement of a kind is under way, what comes next gathers, and the next statement does it all: under load one
//! round trip, one plan and one flush of the log serve many requests. Alone, a request waits for its own statement and
//! nothing else. A statement always begins after everything that it serves was asked for, so a read that proves what a
//! process remembers never answers from before the question.

use crate::{database::ANSWER, waiting::Waiting};
use async_trait::async_trait;
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{sync::oneshot, time::timeout};
use tracing::Instrument as _;

/// Most that one statement does.
const MOST: usize = 64;
/// How often the first of a wave looks whether others came.
const LOOKS: usize = 16;

/// What can be done for many at once.
#[async_trait]
pub(crate) trait Batch: Send + Sync + 'static {
    /// What is asked for.
    type Item: Send;
    /// What is answered.
    type Answer: Send;
    /// What is done, for the log and traces.
    const WHAT: &'static str;

    /// Does it all, and answers in the same order.
    async fn together(&self, items: Vec<Self::Item>) -> Vec<Self::Answer>;
}

/// Those who wait for the next statement.
pub(crate) struct Gather<B: Batch> {
    pub(crate) batch: B,
    gate: Mutex<Gate<B>>,
    pub(crate) waiting: Waiting,
}

/// What is asked for, and the line on which the answer is awaited.
type Asker<B> = (<B as Batch>::Item, oneshot::Sender<<B as Batch>::Answer>);

struct Gate<B: Batch> {
    under_way: bool,
    waiting: VecDeque<Asker<B>>,
}

impl<B: Batch> Gather<B> {
    /// Whoever asks is counted among those who wait.
    pub(crate) fn over(batch: B, waiting: &Waiting) -> Arc<Self> {
        let gate = Mutex::new(Gate { under_way: false, waiting: VecDeque::new() });
        Arc::new(Self { batch, gate, waiting: waiting.clone() })
    }

    /// The answer. `None` when it did not come in time, or whoever worked on it ended half-way: whether it was done is
    /// not known. The time is that of one statement, however many are waited for: while PostgreSQL hangs, those that
    /// wait behind each other are refused as soon as those in front.
    pub(crate) async fn ask(self: &Arc<Self>, item: B::Item) -> Option<B::Answer> {
        let (asker, answer) = oneshot::channel();
        if let Some(turn) = self.join(item, asker) {
            // A task of its own, because an asker may go away and the others still wait.
            tokio::spawn(turn.work_until_nobody_waits());
        }
        // The statement is nobody's in particular, so traces show how long it was waited for.
        let span = tracing::debug_span!("together", otel.kind = "client", db.query.summary = B::WHAT);
        self.waiting.during(timeout(ANSWER, answer).instrument(span)).await.ok()?.ok()
    }

    /// The first has to see to it that somebody works, and gets the turn. It is made here, and not when the work
    /// begins: a runtime that shuts down drops tasks that never ran, and whoever asks later must not wait for one.
    fn join(self: &Arc<Self>, item: B::Item, asker: oneshot::Sender<B::Answer>) -> Option<Turn<B>> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.waiting.push_back((item, asker));
        let is_first = !mem::replace(&mut gate.under_way, true);
        is_first.then(|| Turn { of: Arc::clone(self), over: false })
    }

    /// Lets those come along who are about to ask at this very moment: this task would run in front of those that are
    /// ready, and what wakes one of them mostly wakes more. Ends as soon as nobody came.
    async fn settle(&self) {
        let mut came = 0;
        for _ in 0..LOOKS {
            tokio::task::yield_now().await;
            let waiting = self.gate.lock().unwrap_or_else(PoisonError::into_inner).waiting.len();
            if waiting == came {
                return;
            }
            came = waiting;
        }
    }

    fn next_askers(&self) -> Vec<Asker<B>> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody waits for any more has not begun, and does not begin.
        gate.waiting.retain(|(_, line)| !line.is_closed());
        gate.under_way = !gate.waiting.is_empty();
        let many = gate.waiting.len().min(MOST);
        gate.waiting.drain(..many).collect()
    }
}

/// Whoever works. If it ends half-way, nobody may wait for it.
struct Turn<B: Batch> {
    of: Arc<Gather<B>>,
    over: bool,
}

impl<B: Batch> Turn<B> {
    async fn work_until_nobody_waits(mut self) {
        self.of.settle().await;
        loop {
            let (items, lines): (Vec<B::Item>, Vec<oneshot::Sender<B::Answer>>) =
                self.of.next_askers().into_iter().unzip();
            if items.is_empty() {
                self.over = true;
                return;
            }
            for (line, answer) in lines.into_iter().zip(self.of.batch.together(items).await) {
                // Whoever went away needs no answer.
                let _gone = line.send(answer);
            }
        }
    }
}

impl<B: Batch> Drop for Turn<B> {
    fn drop(&mut self) {
        if !self.over {
            let mut gate = self.of.gate.lock().unwrap_or_else(PoisonError::into_inner);
            gate.under_way = false;
            gate.waiting.clear();
        }
    }
}

impl<B: Batch> fmt::Debug for Gather<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Gather")
    }
}

#[cfg(test)]
mod tests;
