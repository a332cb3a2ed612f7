//! HTTP/1.1 and HTTP/2, with limits that keep one client from using up the server.

use crate::config::ServerConfig;
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error;
use std::pin::Pin;
use std::time::Duration;

/// The most concurrent requests of one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// The most bytes of a request's headers.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// The most streams that a client has reset and the server still holds; beyond it the connection ends.
const RESETS_MAX: usize = 20;
/// Flow-control windows: unread bytes of a request, and of all requests of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Windows for connections beyond `WIDE_MAX`. Bytes in windows lie outside the room for bodies, so their sum must
/// be bounded. The connection's window is HTTP/2's initial one, and no single unread request can fill it.
const NARROW_STREAM_WINDOW: u32 = NARROW_WINDOW / 4;
const NARROW_WINDOW: u32 = (64 << 10) - 1;
/// Connections with wide windows: 256 MiB in all, plus 64 MiB for each further thousand connections.
const WIDE_MAX: usize = 64;
/// The most bytes of a frame: four times HTTP/2's initial limit, because frames are handled one by one.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// Bytes of an answer that a connection buffers for a client that does not read.
const SEND_BUFFER: usize = 1 << 20;
/// The ping interval of a quiet HTTP/2 connection, and the time limit for the reply.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);

/// The protocol of a listener.
#[derive(Debug, Clone, Copy)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Builds connections of a protocol.
#[derive(Clone)]
pub(super) enum Builder {
    Http1(http1::Builder),
    Http2(http2::Builder<TokioExecutor>),
}

impl Protocol {
    /// The protocol's name (RFC 7301).
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    pub(super) fn builder(self, config: &ServerConfig) -> Builder {
        let header_timeout = Duration::from_millis(config.header_timeout_ms);
        match self {
            Self::Http1 => {
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(header_timeout);
                Builder::Http1(builder)
            }
            Self::Http2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder
                    .timer(TokioTimer::new())
                    .max_concurrent_streams(STREAMS_MAX)
                    .max_header_list_size(HEADERS_BYTES_MAX)
                    .max_pending_accept_reset_streams(RESETS_MAX)
                    .max_local_error_reset_streams(RESETS_MAX)
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_frame_size(FRAME_BYTES_MAX)
                    .max_send_buf_size(SEND_BUFFER)
                    .keep_alive_interval(PING)
                    .keep_alive_timeout(PONG);
                Builder::Http2(builder)
            }
        }
    }
}

impl Builder {
    /// The builder for a connection when `open` connections are open.
    pub(super) fn of(&self, open: usize) -> Self {
        let mut builder = self.clone();
        if let Self::Http2(builder) = &mut builder
            && open > WIDE_MAX
        {
            builder.initial_stream_window_size(NARROW_STREAM_WINDOW);
            builder.initial_connection_window_size(NARROW_WINDOW);
        }
        builder
    }
}

/// A connection that can shut down after its open requests are answered.
pub(super) trait Graceful: Future<Output = hyper::Result<()>> {
    /// Starts the shutdown.
    fn shut_down(self: Pin<&mut Self>);
}

impl<I, B, S> Graceful for http1::Connection<I, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    I: Read + Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, B, S> Graceful for http2::Connection<I, S, TokioExecutor>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    I: Read + Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    TokioExecutor: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
