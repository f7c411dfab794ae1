//! Wakeups between processes, over `NOTIFY` and `LISTEN` on one dedicated connection each. Transactions that write
//! data send no notifications, because PostgreSQL serializes the commits of transactions that do.

use crate::{
    database::tls_connector,
    error_redaction::redact_driver_error,
    guarded_commit::{Input, Query},
    store_error,
};
use async_trait::async_trait;
use fairway_domain::{
    store::StoreError,
    wakeup::{Wakeup, WakeupBus},
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
/// Time-out for opening a connection, and for sending a notification.
const TIMEOUT: Duration = Duration::from_millis(900);

/// The wakeup bus of this process, which exchanges wakeups with other processes through PostgreSQL.
pub struct PostgresWakeupBus {
    url: String,
    notifier: Mutex<Option<Notifier>>,
    listener: Mutex<Option<Listener>>,
}

/// The connection that sends notifications.
struct Notifier {
    client: Client,
    /// The statement is prepared once, because a process sends hundreds of notifications per second.
    notify: Statement,
}

/// The connection that receives notifications.
struct Listener {
    payloads: mpsc::UnboundedReceiver<String>,
    /// Held only to keep the connection open.
    _client: Client,
}

impl PostgresWakeupBus {
    /// Creates a bus over the database at this address. Connections are opened on first use.
    #[must_use]
    pub const fn new(url: String) -> Self {
        Self { url, notifier: Mutex::const_new(None), listener: Mutex::const_new(None) }
    }

    async fn listen(&self) -> Result<Listener, StoreError> {
        let (sender, payloads) = mpsc::unbounded_channel();
        let (client, mut connection) = connect(&self.url).await?;
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message
                    && sender.send(notification.payload().to_owned()).is_err()
                {
                    return;
                }
            }
        });
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(store_error::from_driver)?;
        Ok(Listener { payloads, _client: client })
    }
}

type DriverConnection = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

async fn connect(url: &str) -> Result<(Client, DriverConnection), StoreError> {
    let mut config = Config::from_str(url).map_err(store_error::from_driver)?;
    config.connect_timeout(TIMEOUT).application_name("fairway-signals");
    // A notification needs no durable commit, because a crash of PostgreSQL also closes the connections of its
    // receivers.
    let options = config.get_options().map_or_else(String::new, |options| format!("{options} "));
    config.options(format!("{options}-c synchronous_commit=off"));
    timeout(TIMEOUT, config.connect(tls_connector()))
        .await
        .map_err(|elapsed| store_error::unavailable(Box::new(elapsed)))?
        .map_err(store_error::from_driver)
}

#[async_trait]
impl WakeupBus for PostgresWakeupBus {
    async fn publish(&self, wakeups: &[Wakeup]) -> Result<(), StoreError> {
        static NOTIFY: Query = Query::new("SELECT pg_notify({channel}, {message})");
        let message: String = wakeups.iter().map(|wakeup| wakeup.as_wire()).collect::<Vec<_>>().join(" ");
        let input = Input::without_rows().with_param("channel", CHANNEL).with_param("message", message.as_str());
        let mut notifier_slot = self.notifier.lock().await;
        let notifier = match notifier_slot.take().filter(|notifier| !notifier.client.is_closed()) {
            Some(notifier) => notifier,
            None => {
                let (client, connection) = connect(&self.url).await?;
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(
                            error = %redact_driver_error(error),
                            "the connection that publishes wakeups failed; the next publish reconnects"
                        );
                    }
                });
                let notify = timeout(TIMEOUT, client.prepare(NOTIFY.text(&input)?))
                    .await
                    .map_err(|elapsed| store_error::unavailable(Box::new(elapsed)))?
                    .map_err(store_error::from_driver)?;
                Notifier { client, notify }
            }
        };
        // The connection is reused only after a response. A connection that hangs would block all later
        // notifications.
        let sent = timeout(TIMEOUT, notifier.client.execute(&notifier.notify, &input.params()))
            .await
            .map_err(|elapsed| store_error::unavailable(Box::new(elapsed)))?;
        *notifier_slot = Some(notifier);
        sent.map(|_| ()).map_err(store_error::from_driver)
    }

    async fn receive(&self) -> Result<Vec<Wakeup>, StoreError> {
        let mut listener_slot = self.listener.lock().await;
        let mut listener = match listener_slot.take() {
            Some(listener) => listener,
            None => self.listen().await?,
        };
        let Some(message) = listener.payloads.recv().await else {
            return Err(store_error::unavailable(Box::new(io::Error::other("the listening connection closed"))));
        };
        *listener_slot = Some(listener);
        Ok(message.split(' ').filter_map(Wakeup::parse).collect())
    }
}

impl fmt::Debug for PostgresWakeupBus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PostgresWakeupBus")
    }
}
