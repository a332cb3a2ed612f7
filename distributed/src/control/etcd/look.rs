//! Reads what etcd keeps of a cluster, without becoming a member.

use super::authority::{failed, names};
use super::client::{Client, below, range};
use super::{FORMAT, Keys, Trouble, members};
use crate::control::moving::marker::{MARKER, Marker};
use crate::control::view::ControlView;
use crate::error::{Error, Result};
use crate::net::coordinator::peers::Peer;

/// Reads the keys of a cluster without writing or waiting. The log is not among them.
pub(crate) fn look(keys: &Keys) -> Result<ControlView> {
    let failed = |trouble| failed("read", keys, trouble);
    let client = Client::new(keys).map_err(failed)?;
    let prefix = keys.key("member/");
    let ranges = [
        range(keys.key("format")),
        range(keys.key("cluster")),
        range(keys.key("lead")),
        below(prefix.clone()),
        below(keys.document("")),
    ];
    let [format, cluster, lead, found, documents] = client.look(ranges).map_err(failed)?;
    let Some(format) = format.first() else {
        let reason = format!("there is no cluster at {}", keys.label().display());
        return Err(Error::Control { reason });
    };
    if format.value != FORMAT.as_bytes() {
        let found = String::from_utf8_lossy(&format.value);
        let text = format!("its keys have version {found:?}, expected {FORMAT}");
        return Err(failed(Trouble::Refused(text)));
    }
    let present = members::parsed(&prefix, lead.first(), &found).map_err(failed)?;
    let (version, answering, all) = client.engine().map_err(failed)?;
    let path = || keys.label().join(MARKER);
    let marker = documents.iter().find(|kv| kv.key == keys.document(MARKER));
    let marker = marker.map(|kv| Marker::decode(&kv.value, path)).transpose()?;
    let closed = marker.and_then(|marker| marker.check(path()).err());
    let text = |kv: &super::proto::KeyValue| String::from_utf8_lossy(&kv.value).into_owned();
    Ok(ControlView {
        place: keys.label().display().to_string(),
        engine: format!("etcd {version}, {answering} of {all} members answer"),
        cluster: cluster.first().map(text),
        coordinators: present.iter().filter_map(Peer::of).collect(),
        is_led: !lead.is_empty(),
        documents: names(keys, &documents).into_iter().filter(|name| name != MARKER).collect(),
        closed: closed.map(|error| error.to_string()),
        ..ControlView::default()
    })
}
