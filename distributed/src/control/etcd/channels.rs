//! Connections to all endpoints, encrypted if the address says so.

use crate::control::endpoints::Endpoints;
use crate::control::tls::Tls;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// How long an endpoint may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// The endpoints to connect to.
///
/// # Errors
/// A host that cannot be part of a URI.
pub(super) fn endpoints(endpoints: &Endpoints) -> Result<Vec<Endpoint>, String> {
    let scheme = if endpoints.tls.is_some() { "https" } else { "http" };
    let of_host = |host: &String| {
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"));
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        // The pings detect a hanging member; members reject much more frequent ones.
        let endpoint = endpoint.http2_keep_alive_interval(Duration::from_secs(10));
        Ok(endpoint.keep_alive_timeout(ANSWER).connect_timeout(ANSWER))
    };
    endpoints.hosts.iter().map(of_host).collect()
}

/// Connections that are made on first use, and made again after they were lost.
pub(super) fn connect(endpoints: &[Endpoint], tls: Option<&Tls>) -> Vec<Channel> {
    let Some(tls) = tls else { return endpoints.iter().map(Endpoint::connect_lazy).collect() };
    let mut config = tls.config().as_ref().clone();
    // etcd speaks HTTP/2 only to clients that offer it.
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let mut connector = HttpsConnector::from((http, config));
    connector.enforce_https();
    let connect = |endpoint: &Endpoint| endpoint.connect_with_connector_lazy(connector.clone());
    endpoints.iter().map(connect).collect()
}
