//! The frames of PostgreSQL's protocol, cut out of two streams of bytes.

use std::{collections::HashMap, io, mem};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// What a client asks before it says who it is: for TLS, or for GSSAPI. Both are declined.
const ENCRYPTIONS: [[u8; 4]; 2] = [80_877_103_u32.to_be_bytes(), 80_877_104_u32.to_be_bytes()];
/// How much is read at once.
const CHUNK: usize = 16 * 1024;

/// One side of a connection, with what was read of it and not yet carried on.
pub(super) struct Frames {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Frames {
    pub(super) fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Reads more. `false` when the other side has closed. Whoever stops waiting for it loses nothing.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        self.read.reserve(CHUNK);
        Ok(self.stream.read_buf(&mut self.read).await? > 0)
    }

    /// The first packet, which is the only one without a kind. Encryption is declined on the way.
    pub(super) async fn start(&mut self) -> io::Result<Vec<u8>> {
        loop {
            while let Some(packet) = self.cut(0) {
                if packet.get(4..).is_some_and(|code| ENCRYPTIONS.iter().any(|known| code == known)) {
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

    /// The next frame that has come whole: a kind, a length, the rest.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.cut(1)
    }

    /// The next packet whose length stands behind so many bytes, which it does not count.
    fn cut(&mut self, before: usize) -> Option<Vec<u8>> {
        let (length, _) = self.read.get(before..)?.split_first_chunk()?;
        let whole = before.checked_add(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        if self.read.len() < whole {
            return None;
        }
        let rest = self.read.split_off(whole);
        Some(mem::replace(&mut self.read, rest))
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Says that nothing more comes, and waits until the other side has nothing more to say either.
    pub(super) async fn finish(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut unheard = [0; 1024];
        while self.stream.read(&mut unheard).await? > 0 {}
        Ok(())
    }
}

/// Whether PostgreSQL says with this frame that it is ready for the next request.
pub(super) fn is_ready(frame: &[u8]) -> bool {
    frame.first() == Some(&b'Z')
}

/// What a connection asks for: the statement that is meant now, and those that it has names for.
#[derive(Default)]
pub(super) struct Asked {
    named: HashMap<Vec<u8>, String>,
    statement: String,
    carried_out: bool,
}

impl Asked {
    /// Takes note of a frame. Whether it ends a request.
    pub(super) fn ends_with(&mut self, frame: &[u8]) -> bool {
        let mut texts = frame.get(5..).unwrap_or_default().split(|byte| *byte == 0);
        let mut text = || texts.next().unwrap_or_default();
        match frame.first() {
            // Parse: the statement's name, its text.
            Some(b'P') => {
                let (name, text) = (text().to_vec(), String::from_utf8_lossy(text()).into_owned());
                self.statement.clone_from(&text);
                self.carried_out = false;
                self.named.insert(name, text);
                false
            }
            // Bind: the portal's name, the statement's name.
            Some(b'B') => {
                let _portal = text();
                self.statement = self.named.get(text()).cloned().unwrap_or_default();
                self.carried_out = true;
                false
            }
            // Close, of which only the end is of interest.
            Some(b'C') => {
                self.statement.clear();
                false
            }
            // Query: the text, all at once.
            Some(b'Q') => {
                self.statement = String::from_utf8_lossy(text()).into_owned();
                self.carried_out = true;
                true
            }
            // Sync.
            Some(b'S') => true,
            Some(_) | None => false,
        }
    }

    /// Whether the statement is more than prepared.
    pub(super) fn is_carried_out(&self) -> bool {
        self.carried_out
    }

    pub(super) fn statement(&self) -> &str {
        &self.statement
    }
}
