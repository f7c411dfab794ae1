//! Tests of reads of objects that are longer than their recorded length.

use super::{in_bucket, in_directory, path};
use crate::bounded_read;
use bytes::Bytes;
use fairway_domain::asset::artifact_store::{ArtifactStore, ArtifactStoreError, PutOutcome};
use futures_util::{StreamExt as _, stream};
use object_store::{Attributes, GetResult, GetResultPayload, ObjectMeta, path::Path};
use std::{
    fs::{self, OpenOptions},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

const MIB: usize = 1024 * 1024;
const STORED: &[u8] = b"{\"a\":1}";

/// Bytes that this process has read through system calls. Each test runs in its own process.
fn bytes_read() -> usize {
    let counters = fs::read_to_string("/proc/self/io").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn grown_file_is_refused_unread() {
    let directory = tempfile::tempdir().unwrap();
    let store = in_directory(directory.path());
    assert_eq!(store.put_if_absent(&path(), STORED.to_vec()).await.unwrap(), PutOutcome::Created);
    let file = OpenOptions::new().write(true).open(directory.path().join(path().as_str())).unwrap();
    for size in [STORED.len() as u64 + 1, 1024 * MIB as u64] {
        file.set_len(size).unwrap();
        let before = bytes_read();
        let found = store.read(&path(), STORED.len()).await;
        let put = store.put_if_absent(&path(), STORED.to_vec()).await;
        let read = bytes_read() - before;
        assert!(read < MIB, "{read} bytes were read of a file of {size}");
        assert_eq!(format!("{:?}", found.unwrap().unwrap()), "more unverified bytes than expected");
        assert!(matches!(put, Err(ArtifactStoreError::Conflict)), "{put:?}");
    }
    // An object of the recorded length is accepted. A shorter object is accepted too, because the caller compares
    // the content.
    file.set_len(STORED.len() as u64).unwrap();
    assert!(store.read(&path(), STORED.len()).await.unwrap().unwrap().is_equal_to(STORED));
    file.set_len(0).unwrap();
    assert!(store.read(&path(), STORED.len()).await.unwrap().unwrap().is_equal_to(b""));
}

#[tokio::test]
async fn endless_stream_is_dropped_at_the_first_excess_part() {
    let read_parts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&read_parts);
    // The stream ends eventually, so that an unbounded reader fails the test instead of exhausting memory.
    let parts = stream::iter(0..1_000).map(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(Bytes::from_static(b"1234"))
    });
    let meta = ObjectMeta {
        location: Path::from("x"),
        last_modified: "2026-01-01T00:00:00Z".parse().unwrap(),
        // The reported size is too short, so it does not reveal the real length.
        size: 7,
        e_tag: None,
        version: None,
    };
    let endless = GetResult {
        payload: GetResultPayload::Stream(parts.boxed()),
        range: 0..meta.size,
        meta,
        attributes: Attributes::default(),
        extensions: Default::default(),
    };
    let found = bounded_read::collect(endless, 7).await.unwrap();
    assert_eq!(read_parts.load(Ordering::Relaxed), 2, "parts of four bytes");
    assert_eq!(format!("{found:?}"), "more unverified bytes than expected");
}

/// Serves one request for an object of a terabyte, and sends at most `max_bytes` of it. The thread returns the
/// number of bytes sent.
fn endless_bucket(max_bytes: usize) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let sender = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        read_head(&mut client);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\nETag: \"x\"\r\n\
            Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n";
        client.write_all(head.as_bytes()).unwrap();
        let buffer = [b' '; 64 * 1024];
        let mut sent = 0;
        while sent < max_bytes {
            match client.write(&buffer) {
                Ok(written) => sent += written,
                Err(_) => break,
            }
        }
        sent
    });
    (endpoint, sender)
}

fn read_head(client: &mut TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
}

#[tokio::test]
async fn disconnects_from_a_bucket_that_sends_without_end() {
    let (endpoint, sender) = endless_bucket(256 * MIB);
    let store = in_bucket(&format!("s3://bucket/p?endpoint={endpoint}&region=x-1&path_style=true"));
    let found = store.read(&path(), STORED.len()).await;
    let sent = tokio::task::spawn_blocking(|| sender.join().unwrap()).await.unwrap();
    // The client stops reading, so only its own buffer and those of both sockets are filled.
    assert!(sent < 64 * MIB, "{sent} bytes were sent");
    assert_eq!(format!("{:?}", found.unwrap().unwrap()), "more unverified bytes than expected");
}
