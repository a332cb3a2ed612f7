//! Requests and responses, the one protocol in which members and joiners ask a coordinator for
//! something: [`Enrol`], [`Renewal`], workers' [`Ask`], clients' `Call`, ranks' `Claim`. A request
//! is `u32` length and postcard on a bidirectional stream. Its response has the same form, and
//! longer data (tensors, files, outcomes) follow. Lengths are checked before anything is allocated.

use crate::error::{Error, Result};
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::role::Role;
use crate::net::transport::wire;
use crate::proto::frame::FrameError;
use crate::proto::message::TensorRange;
use crate::worker_info::WorkerId;
use quinn::{Connection, RecvStream, SendStream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of the longest request or response, unless its reader says otherwise.
const BYTES_MAX: usize = 16 << 10;

/// The request of a joiner for a certificate.
#[derive(Serialize, Deserialize)]
pub struct Enrol {
    pub secret: [u8; 16],
    /// Checked by the coordinator: an invalid name gets a response that says so.
    pub name: String,
    /// A certificate request, DER.
    pub csr: Vec<u8>,
    /// The joiner's clock, in seconds since 1970.
    pub now_s: u64,
    /// The role that it wants: it must not use up a token for another role.
    pub role: Role,
}

/// The request of a member, whose certificate may have expired, for a new one with a new key. Name
/// and role are those of the certificate that the member shows.
#[derive(Serialize, Deserialize)]
pub struct Renewal {
    /// A certificate request, DER.
    pub csr: Vec<u8>,
}

/// The requests of a worker besides its work.
#[derive(Serialize, Deserialize)]
pub enum Ask {
    /// A new certificate for a new key, before the old one expires.
    Renew { name: WorkerId, csr: Vec<u8> },
    /// The bytes of a model from an offset on; they follow the response.
    Blob { sha256: String, offset: u64 },
    /// The tensors of a task from an offset on; they follow the response.
    Tensors(TensorRange),
    /// The outcome of an attempt whose own stream was lost: a frame that follows. The response,
    /// which is empty, says that the coordinator took it.
    Outcome,
}

/// A certificate and that of its authority, PEM.
#[derive(Serialize, Deserialize)]
pub struct Certified {
    pub(crate) cert_pem: String,
    pub(crate) ca_pem: String,
}

/// The response to [`Enrol`], [`Renewal`] and [`Ask::Renew`].
pub type Certification = Result<Certified, JoinRefusal>;

/// Makes a request on a stream of its own, and returns the response.
pub(crate) async fn ask<T: DeserializeOwned>(
    connection: &Connection,
    request: &impl Serialize,
) -> Result<T> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(wire::lost)?;
    write(&mut send, request).await?;
    send.finish().map_err(wire::lost)?;
    read(&mut recv).await
}

/// The next request of a peer, and the stream for its response.
pub(crate) async fn accept<T: DeserializeOwned>(
    connection: &Connection,
) -> Result<(T, SendStream)> {
    let (send, mut recv) = connection.accept_bi().await.map_err(wire::lost)?;
    Ok((read(&mut recv).await?, send))
}

/// Responds, with nothing to follow.
pub(crate) async fn respond(send: &mut SendStream, response: &impl Serialize) -> Result<()> {
    wire::taken(write(send, response)).await?;
    send.finish().map_err(wire::lost)
}

/// Reads one request or response.
pub(crate) async fn read<T: DeserializeOwned>(recv: &mut RecvStream) -> Result<T> {
    read_within(recv, BYTES_MAX).await
}

/// As [`read`], with another limit of bytes.
pub(crate) async fn read_within<T: DeserializeOwned>(
    recv: &mut RecvStream,
    limit: usize,
) -> Result<T> {
    let mut length = [0; 4];
    wire::fill(recv, &mut length).await?;
    let given = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if given > limit {
        return Err(FrameError::TooLong { what: "request", given, limit }.into());
    }
    let mut bytes = vec![0; given];
    wire::fill(recv, &mut bytes).await?;
    Ok(decode(&bytes)?)
}

/// Decodes one request or response. Bytes after the known fields belong to newer versions.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    let malformed =
        |e: postcard::Error| FrameError::Header { kind: "request".into(), reason: e.to_string() };
    Ok(postcard::take_from_bytes(bytes).map_err(malformed)?.0)
}

/// Writes one request or response.
pub(crate) async fn write(send: &mut SendStream, value: &impl Serialize) -> Result<()> {
    write_within(send, value, BYTES_MAX).await
}

/// As [`write`], with another limit of bytes.
pub(crate) async fn write_within(
    send: &mut SendStream,
    value: &impl Serialize,
    limit: usize,
) -> Result<()> {
    let body = postcard::to_stdvec(value).map_err(wire::lost)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= limit);
    let Some(length) = length else {
        let (what, given) = ("request", body.len());
        return Err(Error::TooLarge { what, given, limit });
    };
    let bytes = [&length.to_le_bytes()[..], &body].concat();
    send.write_all(&bytes).await.map_err(wire::lost)
}
