//! Framing of PostgreSQL's protocol over byte streams.

use std::{io, mem};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Codes of the requests for TLS and for GSSAPI encryption that may precede the startup message. The proxy
/// declines them.
const ENCRYPTION_REQUESTS: [[u8; 4]; 2] = [80_877_103_u32.to_be_bytes(), 80_877_104_u32.to_be_bytes()];
/// Read buffer size in bytes.
const CHUNK: usize = 16 * 1024;

/// One side of a proxied connection, with the received bytes that are not yet forwarded.
pub(super) struct FrameStream {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl FrameStream {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Reads more bytes. Returns `false` when the peer has closed the connection. Cancel-safe.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(CHUNK);
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    /// Reads the startup message, the only message without a type byte. Declines preceding encryption requests.
    pub(super) async fn read_startup(&mut self) -> io::Result<Vec<u8>> {
        loop {
            while let Some(packet) = self.take_packet(0) {
                if packet.get(4..).is_some_and(|code| ENCRYPTION_REQUESTS.iter().any(|known| code == known)) {
                    self.write(b"N").await?;
                } else {
                    return Ok(packet);
                }
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next complete frame: type, length, payload.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.take_packet(1)
    }

    /// The next packet. `prefix_length` is the number of bytes before the length field; the length excludes them.
    fn take_packet(&mut self, prefix_length: usize) -> Option<Vec<u8>> {
        let (length, _) = self.buffer.get(prefix_length..)?.split_first_chunk()?;
        let packet_length = prefix_length.checked_add(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        if self.buffer.len() < packet_length {
            return None;
        }
        let remaining = self.buffer.split_off(packet_length);
        Some(mem::replace(&mut self.buffer, remaining))
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Closes the sending side, and reads until the peer closes.
    pub(super) async fn finish(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut discarded = [0; 1024];
        while self.stream.read(&mut discarded).await? > 0 {}
        Ok(())
    }
}

/// Whether the frame is the message ReadyForQuery, which ends the response to a request.
pub(super) fn is_ready_for_query(frame: &[u8]) -> bool {
    frame.first() == Some(&b'Z')
}
