//! Receives a part of a message in pieces, at a pace: either into a file, for a model that a detector sends, or
//! discarded, so that the sender gets an answer and the next request is found.
#![deny(clippy::as_conversions)]

use super::zmtp::{Head, Peer};
use crate::extract::Pace;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Discards a part of at most `bytes_max` bytes.
///
/// # Errors
/// If the part is longer, breaks off or stalls; the connection cannot continue then.
pub(super) async fn pass(
    peer: &mut Peer<impl AsyncRead + AsyncWrite + Unpin>,
    part: (Head, u64),
    pace: &mut Pace,
) -> Result<()> {
    let not_kept = Err(ErrorKind::Other.into());
    copy(peer, part, pace, not_kept).await.map(drop)
}

/// Writes a part to a new file.
///
/// # Errors
/// As [`pass`]. The inner error says why the file was not written; the part was discarded then.
pub(super) async fn take_in(
    peer: &mut Peer<impl AsyncRead + AsyncWrite + Unpin>,
    part: (Head, u64),
    pace: &mut Pace,
    path: &Path,
) -> Result<Result<()>> {
    let file = File::create(path).await;
    copy(peer, part, pace, file).await
}

async fn copy(
    peer: &mut Peer<impl AsyncRead + AsyncWrite + Unpin>,
    (part, bytes_max): (Head, u64),
    pace: &mut Pace,
    mut file: Result<File>,
) -> Result<Result<()>> {
    part.check(bytes_max)?;
    let mut left = part.bytes();
    while left > 0 {
        let got = usize::try_from(part.bytes() - left).unwrap_or(usize::MAX);
        let next = pace.next(got, peer.piece(left)).await;
        let next = next.map_err(|fault| Error::new(ErrorKind::TimedOut, fault.message))?;
        let piece = next?;
        if let Ok(open) = &mut file {
            let written = open.write_all(piece).await;
            if let Err(error) = written {
                file = Err(error);
            }
        }
        let bytes = piece.len();
        peer.consume(bytes);
        left = left.saturating_sub(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
    Ok(match file {
        // Written bytes may be buffered until the flush.
        Ok(mut file) => file.flush().await,
        Err(error) => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_cannot_be_written_is_read_past() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let sent = [&[0][..], &[8], &[7; 8], &[0, 1, 9]].concat();
        let (mut peer, mut far) = (Peer::greeted(near), far);
        far.write_all(&sent).await.expect("room");
        let mut pace = Pace::new(&ServerConfig::default());
        let part = peer.part().await.expect("a part");
        // A device that is always full.
        let kept = take_in(&mut peer, (part, 8), &mut pace, Path::new("/dev/full")).await;
        let error = kept.expect("the connection goes on").expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let next = peer.part().await.expect("the next part");
        assert_eq!(peer.take(next, 1).await.expect("its content"), [9]);
    }
}
