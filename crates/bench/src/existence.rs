//! Whether the time of a refusal tells that a thing is there.
//!
//! A read by an identifier that is somebody else's and a read by one that nobody has get the same answer. Here they are
//! timed against each other, in pairs, so that whatever else the machine does hits both alike.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use uuid::Uuid;

use crate::bar::{Judged, Verdict};
use crate::connection::{Connection, get, with_header};
use crate::furniture::{Furniture, NEIGHBOUR, OUTSIDER, Things};

/// What `--only` calls all of this.
pub(crate) const NAME: &str = "existence";
/// Pairs that are timed.
const PAIRS: usize = 2_000;
/// Pairs before, while caches fill and plans settle.
const WARM_UP: usize = 200;
/// The medians may differ by less than this share of the lower one.
const APART: f64 = 0.1;

/// What is read by its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noun {
    Workload,
    Asset,
    Release,
    Execution,
}

/// Why the reader may not know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hidden {
    /// It is another tenant's, and the reader administers its own.
    Abroad,
    /// It is in a workspace of the same tenant, and the reader administers another one.
    NextDoor,
}

/// Medians of one kind of read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) noun: Noun,
    pub(crate) hidden: Hidden,
    /// Of the identifier that somebody else has.
    pub(crate) foreign: Duration,
    /// Of an identifier that nobody has.
    pub(crate) random: Duration,
}

impl Noun {
    pub(crate) const ALL: [Noun; 4] = [Noun::Workload, Noun::Asset, Noun::Release, Noun::Execution];

    fn name(self) -> &'static str {
        match self {
            Noun::Workload => "workload",
            Noun::Asset => "asset",
            Noun::Release => "release",
            Noun::Execution => "execution",
        }
    }

    fn path(self, id: &str) -> String {
        match self {
            Noun::Workload => format!("/v1/workloads/{id}"),
            Noun::Asset => format!("/v1/assets/{id}"),
            Noun::Release => format!("/v1/releases/{id}"),
            Noun::Execution => format!("/v1/executions/{id}"),
        }
    }

    fn of(self, things: &Things) -> &str {
        match self {
            Noun::Workload => &things.workload,
            Noun::Asset => &things.asset,
            Noun::Release => &things.release,
            Noun::Execution => &things.execution,
        }
    }
}

impl Hidden {
    pub(crate) const ALL: [Hidden; 2] = [Hidden::Abroad, Hidden::NextDoor];

    fn reader(self) -> &'static str {
        match self {
            Hidden::Abroad => OUTSIDER,
            Hidden::NextDoor => NEIGHBOUR,
        }
    }

    fn things(self, furniture: &Furniture) -> &Things {
        match self {
            Hidden::Abroad => &furniture.abroad,
            Hidden::NextDoor => &furniture.home,
        }
    }

    fn whose(self) -> &'static str {
        match self {
            Hidden::Abroad => "of another tenant",
            Hidden::NextDoor => "of another workspace",
        }
    }
}

impl Compared {
    /// How far the medians are apart, as a share of the lower one.
    pub(crate) fn apart(&self) -> f64 {
        let (one, other) = (self.foreign.as_secs_f64(), self.random.as_secs_f64());
        (one - other).abs() / one.min(other).max(f64::EPSILON)
    }

    pub(crate) fn name(&self) -> String {
        name(self.noun, self.hidden)
    }
}

fn name(noun: Noun, hidden: Hidden) -> String {
    format!("{NAME}: {} {}", noun.name(), hidden.whose())
}

/// Compares every kind of read, one client on one connection.
///
/// # Errors
/// When any of the reads is answered with anything but 404.
pub(crate) async fn measure(address: SocketAddr, furniture: &Furniture) -> Result<Vec<Compared>> {
    let mut connection = Connection::open(address).await?;
    let mut compared = Vec::new();
    for hidden in Hidden::ALL {
        for noun in Noun::ALL {
            compared.push(compare(&mut connection, noun, hidden, furniture).await?);
        }
    }
    Ok(compared)
}

async fn compare(connection: &mut Connection, noun: Noun, hidden: Hidden, furniture: &Furniture) -> Result<Compared> {
    let theirs = noun.path(noun.of(hidden.things(furniture)));
    let (mut foreign, mut random) = (Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS));
    for pair in 0..WARM_UP.saturating_add(PAIRS) {
        // Of the same age as the others: an identifier tells its month, and with it which partition is looked in.
        let nobodys = noun.path(&Uuid::now_v7().to_string());
        // Each goes first as often as the other, because the second finds everything warm.
        let mut turns = [(&theirs, &mut foreign), (&nobodys, &mut random)];
        if pair % 2 == 1 {
            turns.reverse();
        }
        for (path, times) in turns {
            let took = refused(connection, path, hidden.reader()).await?;
            if pair >= WARM_UP {
                times.push(took);
            }
        }
    }
    Ok(Compared { noun, hidden, foreign: median(foreign), random: median(random) })
}

/// How long a read takes to be refused.
async fn refused(connection: &mut Connection, path: &str, reader: &str) -> Result<Duration> {
    let request = with_header(get(path), "x-actor-ref", reader);
    let since = Instant::now();
    let answer = connection.send(request).await?;
    let took = since.elapsed();
    if answer.status != 404 {
        bail!("{path} as {reader} answered {answer}");
    }
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A bar for each kind of read, measured or not.
pub(crate) fn judge(compared: &[Compared]) -> Vec<Judged> {
    let kinds = Hidden::ALL.into_iter().flat_map(|hidden| Noun::ALL.map(|noun| (noun, hidden)));
    kinds
        .map(|(noun, hidden)| {
            let found = compared.iter().find(|one| one.noun == noun && one.hidden == hidden);
            Judged {
                what: format!("{}, medians against nobody's", name(noun, hidden)),
                bar: "under 10 % apart".to_owned(),
                measured: found.map_or_else(|| "n/a".to_owned(), |one| format!("{:.1} %", one.apart() * 100.0)),
                verdict: found.map_or(Verdict::NotMeasured, |one| Verdict::of(one.apart() < APART)),
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn compared(noun: Noun, foreign: u64, random: u64) -> Compared {
        let of = Duration::from_micros;
        Compared { noun, hidden: Hidden::Abroad, foreign: of(foreign), random: of(random) }
    }

    #[test]
    fn medians_are_told_apart_either_way() {
        let median_of = |times: &[u64]| median(times.iter().copied().map(Duration::from_micros).collect());
        assert_eq!(median_of(&[900, 100, 300]), Duration::from_micros(300));
        let judged = judge(&[
            compared(Noun::Workload, 500, 520),
            compared(Noun::Asset, 560, 500),
            compared(Noun::Release, 500, 560),
        ]);
        let verdicts: Vec<Verdict> = judged.iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts[..4], [Verdict::Met, Verdict::Missed, Verdict::Missed, Verdict::NotMeasured]);
        assert_eq!((judged.len(), judged[1].measured.as_str()), (8, "12.0 %"));
        assert!(judged[4..].iter().all(|one| one.verdict == Verdict::NotMeasured));
    }
}
