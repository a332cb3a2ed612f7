//! The replying side of ZMTP 3.0, ZeroMQ's wire protocol, without security (mechanism `NULL`): greeting, handshake,
//! and the frames of requests and answers. Sizes are checked before memory is allocated.
#![deny(clippy::as_conversions)]

use std::io::{Error, ErrorKind, Result};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// Another frame of the same message follows.
const MORE: u8 = 1;
/// The length has eight bytes instead of one.
const LONG: u8 = 2;
/// The frame is a command of the protocol, not a part of a message.
const COMMAND: u8 = 4;
/// The largest command. Commands carry socket types, reasons and short contexts.
const COMMAND_BYTES_MAX: u64 = 4 << 10;
/// The largest context of a `PING`, which `PONG` repeats.
const CONTEXT_BYTES_MAX: usize = 16;

/// The header of a part whose content is still to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    bytes: u64,
    /// Whether another part of the message follows.
    pub(super) more: bool,
}

impl Head {
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// Refuses a part longer than `bytes_max`.
    pub(super) fn check(self, bytes_max: u64) -> Result<()> {
        let bytes = self.bytes;
        if bytes > bytes_max {
            return Err(broken(format!("a frame of {bytes} bytes, expected at most {bytes_max}")));
        }
        Ok(())
    }
}

/// A connection to a client, which sends requests.
#[derive(Debug)]
pub(super) struct Peer<S> {
    stream: BufReader<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Exchanges greetings, and checks that the other end is a requesting socket.
    ///
    /// # Errors
    /// Errors of the stream, and `InvalidData` if the other end speaks another protocol.
    pub(super) async fn greet(stream: S) -> Result<Self> {
        let mut peer = Self { stream: BufReader::new(stream) };
        // Sent at once, because the other end sends ten bytes and then waits for ours.
        peer.send(&greeting()).await?;
        let mut theirs = [0; 64];
        peer.stream.read_exact(&mut theirs).await?;
        let [0xff, _, _, _, _, _, _, _, _, 0x7f, 3..=255, _, mechanism @ ..] = theirs else {
            return Err(broken("no greeting of ZMTP 3"));
        };
        let (name, _) = mechanism.split_at(20);
        if name.strip_prefix(b"NULL").is_none_or(|rest| rest.iter().any(|byte| *byte != 0)) {
            return Err(broken("a security mechanism other than NULL"));
        }
        let ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03REP\x08Identity\x00\x00\x00\x00";
        peer.send(&framed(COMMAND, ready)).await?;
        let (flags, bytes) = peer.flags().await?;
        if flags & COMMAND == 0 {
            return Err(broken("a message before the handshake"));
        }
        let command = peer.command(bytes).await?;
        match socket_type(&command) {
            Some(b"REQ" | b"DEALER") => Ok(peer),
            _ => {
                let refusal = b"\x05ERROR\x1aexpected a socket REQ here";
                peer.send(&framed(COMMAND, refusal)).await?;
                Err(broken("a socket that is neither REQ nor DEALER"))
            }
        }
    }

    /// A connection that has exchanged greetings already.
    #[cfg(test)]
    pub(super) fn greeted(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Waits for data; false if the other end has closed.
    pub(super) async fn wait(&mut self) -> Result<bool> {
        Ok(!self.stream.fill_buf().await?.is_empty())
    }

    /// The first part of a request, after the empty part that delimits its envelope.
    pub(super) async fn request(&mut self) -> Result<Head> {
        match self.part().await? {
            Head { bytes: 0, more: true } => self.part().await,
            _ => Err(broken("a message without the empty part that a request begins with")),
        }
    }

    /// The next part. Handles commands before it.
    pub(super) async fn part(&mut self) -> Result<Head> {
        loop {
            let (flags, bytes) = self.flags().await?;
            if flags & COMMAND == 0 {
                return Ok(Head { bytes, more: flags & MORE != 0 });
            }
            let command = self.command(bytes).await?;
            match command.strip_prefix(b"\x04PING").and_then(|rest| rest.split_at_checked(2)) {
                Some((_, context)) if context.len() <= CONTEXT_BYTES_MAX => {
                    let pong = framed(COMMAND, &[b"\x04PONG", context].concat());
                    self.send(&pong).await?;
                }
                _ => return Err(broken("a command that does not belong here")),
            }
        }
    }

    /// The content of a part. Memory grows with the received bytes, not with the announced length.
    pub(super) async fn take(&mut self, head: Head, bytes_max: u64) -> Result<Vec<u8>> {
        head.check(bytes_max)?;
        let mut content = Vec::new();
        let read = (&mut self.stream).take(head.bytes).read_to_end(&mut content).await?;
        if u64::try_from(read).is_ok_and(|read| read == head.bytes) {
            Ok(content)
        } else {
            Err(ErrorKind::UnexpectedEof.into())
        }
    }

    /// The received content of a part that lacks `left` bytes. The bytes stay buffered until they are
    /// [consumed](Self::consume).
    pub(super) async fn piece(&mut self, left: u64) -> Result<&[u8]> {
        let all = self.stream.fill_buf().await?;
        if all.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(all.len());
        Ok(all.get(..most).unwrap_or_default())
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.stream.consume(bytes);
    }

    /// Answers a request.
    pub(super) async fn answer(&mut self, parts: &[Vec<u8>]) -> Result<()> {
        let mut bytes = framed(MORE, b"");
        for (i, part) in parts.iter().enumerate() {
            let more = if i + 1 < parts.len() { MORE } else { 0 };
            bytes.extend(framed(more, part));
        }
        self.send(&bytes).await
    }

    async fn flags(&mut self) -> Result<(u8, u64)> {
        let flags = self.stream.read_u8().await?;
        let is_known = flags & !(MORE | LONG | COMMAND) == 0;
        if !is_known || flags & COMMAND != 0 && flags & MORE != 0 {
            return Err(broken(format!("a frame with the flags {flags:#04x}")));
        }
        let bytes = match flags & LONG {
            0 => u64::from(self.stream.read_u8().await?),
            _ => self.stream.read_u64().await?,
        };
        Ok((flags, bytes))
    }

    async fn command(&mut self, bytes: u64) -> Result<Vec<u8>> {
        self.take(Head { bytes, more: false }, COMMAND_BYTES_MAX).await
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes).await?;
        self.stream.get_mut().flush().await
    }
}

fn greeting() -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
    bytes.extend(b"NULL");
    bytes.resize(64, 0);
    bytes
}

fn framed(flags: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(content.len()) {
        Ok(length) => vec![flags, length],
        Err(_) => {
            let length = u64::try_from(content.len()).unwrap_or(u64::MAX).to_be_bytes();
            [&[flags | LONG][..], &length].concat()
        }
    };
    bytes.extend(content);
    bytes
}

/// The socket type in a `READY` command. Each property is a name with a one-byte length and a value with a
/// four-byte length.
fn socket_type(command: &[u8]) -> Option<&[u8]> {
    let mut rest = command.strip_prefix(b"\x05READY")?;
    while let Some((length, behind)) = rest.split_first() {
        let (name, behind) = behind.split_at_checked(usize::from(*length))?;
        let (length, behind) = behind.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (value, behind) = behind.split_at_checked(length)?;
        if name.eq_ignore_ascii_case(b"socket-type") {
            return Some(value);
        }
        rest = behind;
    }
    None
}

pub(super) fn broken(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests;
