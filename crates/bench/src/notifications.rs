//! Benchmark of notifications, on a separate server over the shared database. It measures four values:
//! - the rate of the projector, which writes notifications for facts
//! - the delay from a commit to the inbox stream
//! - the delay of webhooks while another receiver never responds
//! - a deep page of a large inbox

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::task::spawn_local;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::child_process::ChildProcess;
use crate::closed_loop_clients::histogram;
use crate::connection::{Connection, delete, get, patch, post, put, with_header};
use crate::fixtures::{Fixtures, WORKSPACE};
use crate::stub_webhook_receiver;
use crate::thresholds::{TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "notifications";
/// Number of facts with notifications for the measurement of the projector.
const PROJECTED_FACTS: u32 = 6_000;
/// Number of facts for the inbox stream, caused one after the other.
const STREAMED_FACTS: usize = 300;
/// Numbers of facts and of destinations in each round of webhooks.
const SENT_FACTS: u32 = 4_000;
const DESTINATIONS: usize = 20;
/// Number of rounds. Each round measures without and then with a receiver that never responds.
const ROUNDS: usize = 2;
/// Number of rows of the large inbox, and the number of its deep page.
const INBOX_ROWS: u32 = 1_000_000;
const DEEP_PAGE: u32 = 1_000;
const PAGE_ROWS: u32 = 50;
const PAGE_READS: usize = 200;
const CLIENTS: usize = 8;
const READER: &str = "user:bench-reader";
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(300);

const MIN_FACTS_PER_SECOND: f64 = 3_000.0;
const MIN_RECIPIENTS: f64 = 3.0;
const MAX_STREAM_DELAY: Duration = Duration::from_millis(250);
const MAX_HOLE_RATIO: f64 = 1.2;
const MAX_DEPTH_RATIO: f64 = 1.3;

/// The measured rates, delays and page times of notifications.
pub(crate) struct NotificationResults {
    /// Projected facts per second, and the mean number of recipients of a fact.
    pub(crate) projected: (f64, f64),
    /// p99 delay from the response to a change until the event of this change in the inbox stream.
    pub(crate) stream_delay: Duration,
    /// p99 delay from a fact to the responding receivers, for each round: without and with a receiver that never
    /// responds.
    pub(crate) delivery_delays: Vec<(Duration, Duration)>,
    /// Median times of the first page and of a deep page of a large inbox.
    pub(crate) inbox_pages: (Duration, Duration),
}

/// Runs all measurements. `restart` stops the server and starts it again.
///
/// # Errors
/// When a response is unexpected, PostgreSQL refuses, or a step does not end in time.
pub(crate) async fn measure(
    fixtures: &Fixtures,
    database: &Client,
    receiver: SocketAddr,
    mut server: ChildProcess,
    restart: impl AsyncFn() -> Result<ChildProcess>,
) -> Result<NotificationResults> {
    let projected = {
        let mut connection = Connection::open(server.address).await?;
        for person in ["user:bench-operator-1", "user:bench-operator-2"] {
            let role =
                json!({"principal": person, "role": "operator", "scope_kind": "workspace", "scope_ref": WORKSPACE});
            connection.json(post("/v1/role-bindings", &role)).await?;
        }
        await_projection(database).await?;
        let sql = "SELECT max(position) FROM notification_position";
        let start: i64 = database.query_one(sql, &[]).await?.try_get(0)?;
        suspend_many(server.address, fixtures, PROJECTED_FACTS).await?;
        server.stop().await?;
        // Resets the projector, so that it processes the same facts again.
        database.batch_execute("TRUNCATE notification, notification_delivery").await?;
        database.execute("UPDATE notification_position SET position = $1 WHERE position > $1", &[&start]).await?;
        server = restart().await?;
        projection_rate(database, start).await?
    };
    let stream_delay = stream_delay(server.address, fixtures).await?;
    let delivery_delays = delivery_delays(server.address, fixtures, database, receiver).await?;
    let inbox_pages = inbox_pages(server.address, database).await?;
    resume(server.address, fixtures).await?;
    server.stop().await?;
    Ok(NotificationResults { projected, stream_delay, delivery_delays, inbox_pages })
}

/// Waits until every fact is sequenced and projected.
async fn await_projection(database: &Client) -> Result<()> {
    let has_backlog_sql = "SELECT EXISTS (SELECT FROM fact_pending) OR EXISTS (
        SELECT FROM fact_log LEFT JOIN notification_position USING (tenant_id) WHERE size > coalesce(position, 0))";
    let since = Instant::now();
    while database.query_one(has_backlog_sql, &[]).await?.try_get(0)? {
        ensure!(since.elapsed() < TIMEOUT, "the projector is behind");
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Suspends each workload many times. Every suspension is a fact that causes notifications.
async fn suspend_many(server: SocketAddr, fixtures: &Fixtures, facts: u32) -> Result<()> {
    let clients = u32::try_from(CLIENTS)?;
    let facts_per_client = facts.div_ceil(clients);
    try_join_all(fixtures.workloads.iter().take(CLIENTS).map(|workload| async move {
        let mut connection = Connection::open(server).await?;
        for _ in 0..facts_per_client {
            suspend(&mut connection, &workload.id).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}

/// Reactivates the suspended workloads, because subsequent benchmarks use them.
async fn resume(server: SocketAddr, fixtures: &Fixtures) -> Result<()> {
    let mut connection = Connection::open(server).await?;
    for workload in fixtures.workloads.iter().take(CLIENTS) {
        connection.json(patch(&format!("/v1/workloads/{}", workload.id), &json!({"status": "registered"}))).await?;
    }
    Ok(())
}

async fn suspend(connection: &mut Connection, workload: &str) -> Result<()> {
    for status in ["registered", "suspended"] {
        let path = format!("/v1/workloads/{workload}");
        connection.json(patch(&path, &json!({"status": status}))).await?;
    }
    Ok(())
}

/// Projected facts per second, measured from the first batch on, and the mean number of recipients of a fact.
async fn projection_rate(database: &Client, start: i64) -> Result<(f64, f64)> {
    let count = "SELECT count(*), count(DISTINCT event_id) FROM notification";
    let state = async || -> Result<(i64, i64)> {
        let row = database.query_one(count, &[]).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    };
    let has_progress_sql = "SELECT max(position) > $1 FROM notification_position";
    let since = Instant::now();
    while !database.query_one(has_progress_sql, &[&start]).await?.try_get::<_, bool>(0)? {
        ensure!(since.elapsed() < TIMEOUT, "the projector does not start");
        sleep(POLL_INTERVAL).await;
    }
    let since = Instant::now();
    let (_, first) = state().await?;
    await_projection(database).await?;
    let elapsed = since.elapsed();
    let (rows, facts) = state().await?;
    Ok(((facts - first) as f64 / elapsed.as_secs_f64(), rows as f64 / facts.max(1) as f64))
}

async fn stream_delay(server: SocketAddr, fixtures: &Fixtures) -> Result<Duration> {
    let workload = &fixtures.workloads.first().context("no workload was created")?.id;
    let arrivals: Rc<RefCell<Vec<Instant>>> = Rc::default();
    let stream = Connection::open(server).await?.send_for_stream(get("/v1/notifications/inbox/stream")).await?;
    let reader_arrivals = Rc::clone(&arrivals);
    let reader = spawn_local(async move {
        let mut body = stream.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            let text = frame.into_data().map(|data| String::from_utf8_lossy(&data).into_owned()).unwrap_or_default();
            let events = text.matches("event: notification").count();
            reader_arrivals.borrow_mut().extend(std::iter::repeat_n(Instant::now(), events));
        }
    });
    let mut connection = Connection::open(server).await?;
    // The first event shows that the stream is open.
    suspend(&mut connection, workload).await?;
    let mut delays = histogram()?;
    for expected in 1..=STREAMED_FACTS {
        let since = Instant::now();
        while arrivals.borrow().len() < expected {
            ensure!(since.elapsed() < TIMEOUT, "the inbox stream misses an event");
            sleep(Duration::from_millis(1)).await;
        }
        suspend(&mut connection, workload).await?;
        let responded_at = Instant::now();
        while arrivals.borrow().len() <= expected {
            ensure!(responded_at.elapsed() < TIMEOUT, "the inbox stream misses an event");
            sleep(Duration::from_micros(200)).await;
        }
        let received_at = arrivals.borrow().last().copied().unwrap_or(responded_at);
        let delay = received_at.saturating_duration_since(responded_at);
        delays.saturating_record(u64::try_from(delay.as_micros())?.max(1));
    }
    reader.abort();
    Ok(Duration::from_micros(delays.value_at_quantile(0.99)))
}

async fn delivery_delays(
    server: SocketAddr,
    fixtures: &Fixtures,
    database: &Client,
    receiver: SocketAddr,
) -> Result<Vec<(Duration, Duration)>> {
    let mut connection = Connection::open(server).await?;
    let preferences = json!([{"category": "incidents", "channel": "webhook", "enabled": true}]);
    connection.json(put("/v1/notifications/preferences", &preferences)).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let without =
            delivery_delay(server, fixtures, database, receiver, stub_webhook_receiver::ACCEPTING_PATH).await?;
        rounds.push((
            without,
            delivery_delay(server, fixtures, database, receiver, stub_webhook_receiver::HANGING_PATH).await?,
        ));
    }
    Ok(rounds)
}

/// p99 delay from a fact to the receivers that accept messages. The receiver at `last_path` may never respond.
async fn delivery_delay(
    server: SocketAddr,
    fixtures: &Fixtures,
    database: &Client,
    receiver: SocketAddr,
    last_path: &str,
) -> Result<Duration> {
    const FOLDER: &str = "/v1/notifications/organization/destinations";
    let mut connection = Connection::open(server).await?;
    let mut destinations = Vec::new();
    for number in 0..DESTINATIONS {
        let path = if number + 1 == DESTINATIONS { last_path } else { stub_webhook_receiver::ACCEPTING_PATH };
        let destination = json!({
            "destination_type": "webhook", "display_name": format!("bench {number}"), "is_enabled": true,
            "redacted_metadata": {"url": format!("http://{receiver}{path}")},
        });
        let response = connection.json(post(FOLDER, &destination)).await?;
        destinations.push(response.get("destination_id").and_then(Value::as_str).context("no destination")?.to_owned());
    }
    // Opens a new connection for each read, because the receiver closes idle connections.
    let read_delays = async || Connection::open(receiver).await?.json(get(stub_webhook_receiver::DELAYS_PATH)).await;
    read_delays().await?;
    suspend_many(server, fixtures, SENT_FACTS).await?;
    await_projection(database).await?;
    let last_destination = destinations.last().context("no destination")?;
    let has_pending_deliveries_sql =
        "SELECT EXISTS (SELECT FROM notification_delivery WHERE status IN ('pending', 'claimed')
        AND destination_id IS NOT NULL AND (destination_id::text <> $1 OR $2))";
    let since = Instant::now();
    while database
        .query_one(
            has_pending_deliveries_sql,
            &[last_destination, &(last_path == stub_webhook_receiver::ACCEPTING_PATH)],
        )
        .await?
        .try_get(0)?
    {
        ensure!(since.elapsed() < TIMEOUT, "the sender is behind");
        sleep(POLL_INTERVAL).await;
    }
    let delays = read_delays().await?;
    let mut all = histogram()?;
    for delay in delays.as_array().into_iter().flatten().filter_map(Value::as_u64) {
        all.saturating_record(delay.max(1));
    }
    ensure!(!all.is_empty(), "no webhook arrived");
    let mut connection = Connection::open(server).await?;
    for id in destinations {
        let response = connection.send(delete(&format!("{FOLDER}/{id}"))).await?;
        ensure!(response.is_success(), "deleting a destination: {response}");
    }
    Ok(Duration::from_micros(all.value_at_quantile(0.99)))
}

async fn inbox_pages(server: SocketAddr, database: &Client) -> Result<(Duration, Duration)> {
    let fill = format!(
        "INSERT INTO notification (tenant_id, notification_id, recipient, status, category, severity, title, body, event_kind,
            event_id, log_index, created_at, revision)
        SELECT tenant.tenant_id, (substr(fairway_uuid_floor(at)::text, 1, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid,
            '{READER}', CASE WHEN number % 4 = 0 THEN 'unread' ELSE 'read' END,
            CASE WHEN number % 3 = 0 THEN 'incidents' ELSE 'approvals' END, 'info', 'A title', 'A body', 'workload.changed',
            gen_random_uuid(), number, at, 1
        FROM (SELECT tenant_id FROM tenant ORDER BY tenant_id LIMIT 1) AS tenant,
            LATERAL (SELECT number, fairway_now() - make_interval(secs => number * 0.01) AS at
                FROM generate_series(1, {INBOX_ROWS}) AS number) AS made
        WHERE at > date_trunc('month', fairway_now()) - interval '1 month'"
    );
    database.batch_execute(&fill).await.context("filling an inbox")?;
    database.batch_execute("VACUUM ANALYZE notification").await?;
    let mut connection = Connection::open(server).await?;
    let first = format!("/v1/notifications/inbox?limit={PAGE_ROWS}");
    let mut deep = first.clone();
    for _ in 1..DEEP_PAGE {
        let response = connection.send(with_header(get(&deep), "x-actor-ref", READER)).await?;
        let link = response.link.context("the inbox ends before its deep page")?;
        let target = link.strip_prefix('<').and_then(|link| link.split_once('>'));
        target.context("the link has no target")?.0.clone_into(&mut deep);
    }
    let mut times = [histogram()?, histogram()?];
    for _ in 0..PAGE_READS {
        for (path, times) in [&first, &deep].into_iter().zip(&mut times) {
            let since = Instant::now();
            let response = connection.send(with_header(get(path), "x-actor-ref", READER)).await?;
            ensure!(response.is_success(), "{path}: {response}");
            times.saturating_record(u64::try_from(since.elapsed().as_micros())?);
        }
    }
    let [first, deep] = times.map(|times| Duration::from_micros(times.value_at_quantile(0.5)));
    Ok((first, deep))
}

impl NotificationResults {
    /// The median, over all rounds, of the delay with a receiver that never responds, relative to the delay
    /// without one.
    fn hole_ratio(&self) -> f64 {
        let ratio =
            |(without, with): &(Duration, Duration)| with.as_secs_f64() / without.as_secs_f64().max(f64::EPSILON);
        let mut ratios: Vec<f64> = self.delivery_delays.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::INFINITY)
    }

    fn depth_ratio(&self) -> f64 {
        let (first, deep) = (self.inbox_pages.0.as_secs_f64(), self.inbox_pages.1.as_secs_f64());
        first.max(deep) / first.min(deep).max(f64::EPSILON)
    }

    pub(crate) fn to_json(&self) -> Value {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let delays = self.delivery_delays.iter().map(|(without, with)| json!([millis(*without), millis(*with)]));
        json!({
            "facts_per_second": self.projected.0, "recipients": self.projected.1,
            "stream_p99_ms": millis(self.stream_delay), "delivery_p99_ms": delays.collect::<Vec<_>>(),
            "inbox_page_ms": [millis(self.inbox_pages.0), millis(self.inbox_pages.1)],
        })
    }
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(measured: Option<&NotificationResults>) -> Vec<TargetResult> {
    let result = |name: &str, target: String, measured: Option<(String, bool)>| TargetResult {
        name: format!("{NAME}: {name}"),
        target,
        verdict: measured.as_ref().map_or(TargetVerdict::NotMeasured, |(_, is_met)| TargetVerdict::of(*is_met)),
        measured: measured.map_or_else(|| "n/a".to_owned(), |(text, _)| text),
    };
    vec![
        result(
            "projected facts a second",
            format!("at least {MIN_FACTS_PER_SECOND:.0} with {MIN_RECIPIENTS:.0} recipients each"),
            measured.map(|measured| {
                let (rate, recipients) = measured.projected;
                let is_met = rate >= MIN_FACTS_PER_SECOND && recipients >= MIN_RECIPIENTS;
                (format!("{rate:.0} with {recipients:.1}"), is_met)
            }),
        ),
        result(
            "p99 from a commit to the inbox stream",
            format!("under {} ms", MAX_STREAM_DELAY.as_millis()),
            measured.map(|measured| {
                (
                    format!("{:.1} ms", measured.stream_delay.as_secs_f64() * 1e3),
                    measured.stream_delay < MAX_STREAM_DELAY,
                )
            }),
        ),
        result(
            "p99 of deliveries beside a receiver that never answers, against the one without",
            format!("at most {MAX_HOLE_RATIO} times"),
            measured.map(|measured| (format!("{:.2}", measured.hole_ratio()), measured.hole_ratio() <= MAX_HOLE_RATIO)),
        ),
        result(
            "page 1 000 of an inbox of a million against page 1",
            format!("within {MAX_DEPTH_RATIO}"),
            measured
                .map(|measured| (format!("{:.2}", measured.depth_ratio()), measured.depth_ratio() <= MAX_DEPTH_RATIO)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_each_target() {
        let millis = Duration::from_millis;
        let mut measured = NotificationResults {
            projected: (3_500.0, 3.0),
            stream_delay: millis(40),
            delivery_delays: vec![(millis(100), millis(110)), (millis(100), millis(90))],
            inbox_pages: (millis(10), millis(12)),
        };
        let verdicts = |measured: &NotificationResults| {
            judge(Some(measured)).into_iter().map(|one| one.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&measured), [TargetVerdict::Met; 4]);
        measured.projected.1 = 2.0;
        measured.stream_delay = millis(251);
        measured.delivery_delays = vec![(millis(100), millis(130))];
        measured.inbox_pages = (millis(10), millis(14));
        assert_eq!(verdicts(&measured), [TargetVerdict::Missed; 4]);
        assert!(judge(None).iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
    }
}
