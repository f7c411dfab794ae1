//! The line between processes: `NOTIFY` and `LISTEN`, each on a connection that does nothing else. No transaction that
//! changes anything sends a notification: PostgreSQL would let such transactions commit one after the other alone.

use crate::{database::tls, failure};
use async_trait::async_trait;
use fairway_domain::{
    signal::{Signal, SignalLine},
    store::StoreError,
};
use futures_util::{StreamExt as _, stream};
use std::{fmt, io, str::FromStr as _, time::Duration};
use tokio::{
    sync::{Mutex, mpsc},
    time::timeout,
};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

const CHANNEL: &str = "fairway_signal";
/// How long a connection may take, and a word over it.
const CONNECT: Duration = Duration::from_millis(900);

/// The line of one process.
pub struct PostgresLine {
    url: String,
    telling: Mutex<Option<Client>>,
    hearing: Mutex<Option<Ear>>,
}

/// A connection that listens.
struct Ear {
    heard: mpsc::UnboundedReceiver<String>,
    /// Keeps the connection open.
    _client: Client,
}

impl PostgresLine {
    /// A line over the database at this address; nothing is connected yet.
    #[must_use]
    pub const fn new(url: String) -> Self {
        Self { url, telling: Mutex::const_new(None), hearing: Mutex::const_new(None) }
    }

    async fn listen(&self) -> Result<Ear, StoreError> {
        let (say, heard) = mpsc::unbounded_channel();
        let (client, mut connection) = connect(&self.url).await?;
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(told) = message
                    && say.send(told.payload().to_owned()).is_err()
                {
                    return;
                }
            }
        });
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(failure::of_store)?;
        Ok(Ear { heard, _client: client })
    }
}

type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

async fn connect(url: &str) -> Result<(Client, Wire), StoreError> {
    let mut config = Config::from_str(url).map_err(failure::of_store)?;
    config.connect_timeout(CONNECT).application_name("fairway-signals");
    timeout(CONNECT, config.connect(tls()))
        .await
        .map_err(|elapsed| failure::unavailable(Box::new(elapsed)))?
        .map_err(failure::of_store)
}

#[async_trait]
impl SignalLine for PostgresLine {
    async fn tell(&self, signals: &[Signal]) -> Result<(), StoreError> {
        let message: Vec<String> = signals.iter().map(|signal| signal.spelled()).collect();
        let mut telling = self.telling.lock().await;
        let client = match telling.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => {
                let (client, connection) = connect(&self.url).await?;
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(error = &error as &dyn std::error::Error, "the line to others broke");
                    }
                });
                client
            }
        };
        // A line that is neither up nor down would keep everything that is to be told: it is left for a new one.
        let message = message.join(" ");
        let told = timeout(CONNECT, client.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &message]))
            .await
            .map_err(|elapsed| failure::unavailable(Box::new(elapsed)))?;
        *telling = Some(client);
        told.map(|_| ()).map_err(failure::of_store)
    }

    async fn hear(&self) -> Result<Vec<Signal>, StoreError> {
        let mut hearing = self.hearing.lock().await;
        let mut ear = match hearing.take() {
            Some(ear) => ear,
            None => self.listen().await?,
        };
        let Some(message) = ear.heard.recv().await else {
            return Err(failure::unavailable(Box::new(io::Error::other("the line that listens broke"))));
        };
        *hearing = Some(ear);
        Ok(message.split(' ').filter_map(Signal::parse).collect())
    }
}

impl fmt::Debug for PostgresLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PostgresLine")
    }
}
