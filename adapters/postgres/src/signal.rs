//! The line between processes: `NOTIFY` and `LISTEN`, each on a connection that does nothing else. No transaction that
//! changes anything sends a notification: PostgreSQL would let such transactions commit one after the other alone.

use crate::{database::tls, driver_error::of_driver, failure};
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
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket, Statement, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

const CHANNEL: &str = "fairway_signal";
/// How long a connection may take, and a word over it.
const CONNECT: Duration = Duration::from_millis(900);

/// The line of one process.
pub struct PostgresLine {
    url: String,
    telling: Mutex<Option<Mouth>>,
    hearing: Mutex<Option<Ear>>,
}

/// A connection that tells.
struct Mouth {
    client: Client,
    /// Prepared once: there are hundreds of words a second.
    notify: Statement,
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
    // A word that is lost in a crash of PostgreSQL is one that nobody is there to hear: none waits for the disk.
    let options = config.get_options().map_or_else(String::new, |options| format!("{options} "));
    config.options(format!("{options}-c synchronous_commit=off"));
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
        let mouth = match telling.take().filter(|mouth| !mouth.client.is_closed()) {
            Some(mouth) => mouth,
            None => {
                let (client, connection) = connect(&self.url).await?;
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(error = %of_driver(error), "the line to others broke");
                    }
                });
                let notify = timeout(CONNECT, client.prepare("SELECT pg_notify($1, $2)"))
                    .await
                    .map_err(|elapsed| failure::unavailable(Box::new(elapsed)))?
                    .map_err(failure::of_store)?;
                Mouth { client, notify }
            }
        };
        // A line that is neither up nor down would keep everything that is to be told: it is left for a new one.
        let message = message.join(" ");
        let told = timeout(CONNECT, mouth.client.execute(&mouth.notify, &[&CHANNEL, &message]))
            .await
            .map_err(|elapsed| failure::unavailable(Box::new(elapsed)))?;
        *telling = Some(mouth);
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
