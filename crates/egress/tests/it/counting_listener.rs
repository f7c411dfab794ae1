//! Listeners that count connections and send a given reply.

use async_trait::async_trait;
use fairway_egress::{EgressRequest, Method, Resolver, header::HeaderMap};
use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The reply of a listener to every connection.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends this text, then closes the connection.
    Text(String),
    /// Sends this text, then `x` without end.
    Endless(String),
    /// Sends this text, then `x` at intervals.
    Slow(String),
}

impl Reply {
    pub(crate) fn fine() -> Self {
        Self::Text("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine".to_owned())
    }
}

pub(crate) struct CountingListener {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl CountingListener {
    pub(crate) async fn at(address: &str, reply_to_send: Reply) -> Self {
        Self::serve(TcpListener::bind(address).await.unwrap(), reply_to_send)
    }

    pub(crate) async fn start(reply_to_send: Reply) -> Self {
        Self::at("127.0.0.1:0", reply_to_send).await
    }

    /// Starts two listeners on one port: at 127.0.0.1 and at 127.0.0.2.
    pub(crate) async fn pair() -> (Self, Self) {
        for _ in 0..100 {
            let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = first.local_addr().unwrap().port();
            if let Ok(second) = TcpListener::bind(("127.0.0.2", port)).await {
                return (Self::serve(first, Reply::fine()), Self::serve(second, Reply::fine()));
            }
        }
        panic!("no port is free at both addresses");
    }

    fn serve(listener: TcpListener, reply_to_send: Reply) -> Self {
        let address = listener.local_addr().unwrap();
        let (connections, received) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (count, received_bytes) = (Arc::clone(&connections), Arc::clone(&received));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(reply(stream, reply_to_send.clone(), Arc::clone(&received_bytes)));
            }
        });
        Self { address, connections, received, task }
    }

    /// Number of accepted connections.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the first bytes of all connections.
    pub(crate) fn received_text(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }
}

impl Drop for CountingListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads the first bytes and sends the reply. A disconnect of the client ends the function.
async fn reply(mut stream: TcpStream, reply_to_send: Reply, received_bytes: Arc<Mutex<Vec<u8>>>) -> io::Result<()> {
    let mut bytes = vec![0; 4096];
    let length = stream.read(&mut bytes).await?;
    bytes.truncate(length);
    received_bytes.lock().unwrap().extend_from_slice(&bytes);
    match reply_to_send {
        Reply::Text(text) => stream.write_all(text.as_bytes()).await?,
        Reply::Endless(text) => {
            stream.write_all(text.as_bytes()).await?;
            loop {
                stream.write_all(&[b'x'; 4096]).await?;
            }
        }
        Reply::Slow(text) => {
            stream.write_all(text.as_bytes()).await?;
            let mut interval = tokio::time::interval(Duration::from_millis(20));
            loop {
                interval.tick().await;
                stream.write_all(b"x").await?;
            }
        }
    }
    stream.shutdown().await
}

/// Resolver that returns the given address lists in turn for any name, and repeats the last list.
pub(crate) struct ScriptedResolver(Mutex<VecDeque<Vec<IpAddr>>>);

impl ScriptedResolver {
    pub(crate) fn of(address_sets: &[&[&str]]) -> Arc<Self> {
        let parse_set = |set: &&[&str]| set.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(address_sets.iter().map(parse_set).collect())))
    }

    pub(crate) fn many(addresses: Vec<IpAddr>) -> Arc<Self> {
        Arc::new(Self(Mutex::new([addresses].into())))
    }
}

#[async_trait]
impl Resolver for ScriptedResolver {
    async fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
        let mut address_sets = self.0.lock().unwrap();
        if address_sets.len() > 1 {
            return Ok(address_sets.pop_front().unwrap());
        }
        Ok(address_sets.front().unwrap().clone())
    }
}

pub(crate) fn get() -> EgressRequest {
    EgressRequest { method: Method::GET, path: String::new(), headers: HeaderMap::new(), body: Default::default() }
}
