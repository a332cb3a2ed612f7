//! Membership of coordinators in etcd.

use super::EtcdAuthority;
use super::client::{below, put, range, unchanged};
use super::proto::KeyValue;
use super::{Trouble, authority::Counted};
use crate::control::authority::{Members, Present};
use crate::error::Result;

/// The members found by their keys below a prefix, the leader first.
pub(super) fn parsed(
    prefix: &[u8],
    lead: Option<&KeyValue>,
    found: &[KeyValue],
) -> Result<Vec<Present>, Trouble> {
    let lead = lead.map_or(&[][..], |kv| &kv.value);
    let odd = || Trouble::Refused("a member has no number".to_owned());
    let mut present = Vec::with_capacity(found.len());
    for kv in found {
        let at = kv.value.iter().position(|byte| *byte == b'\n').ok_or_else(odd)?;
        let (number, about) = kv.value.split_at(at);
        let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
        let holder = kv.key.strip_prefix(prefix).unwrap_or_default();
        present.push(Present {
            number: number.ok_or_else(odd)?,
            leads: !holder.is_empty() && lead.ends_with(holder),
            about: about.get(1..).unwrap_or_default().to_vec(),
        });
    }
    present.sort_by_key(|one| (!one.leads, one.number));
    Ok(present)
}

impl Members for EtcdAuthority {
    fn enter(&self, now_ms: u64, about: &[u8]) -> Result<u64> {
        let enter = |counted: &Counted, number: u64, lease: i64| {
            let mut value = format!("{number}\n").into_bytes();
            value.extend_from_slice(about);
            let key = self.keys.member(&self.holder);
            let compare = vec![unchanged(self.keys.key("counter"), counted.revision)];
            let counter = put(self.keys.key("counter"), number.to_string().as_bytes(), 0);
            let ops = vec![counter, put(key, &value, lease)];
            let made = self.client.transact(compare, ops, Vec::new())?.0;
            if made {
                self.heart.set_member(value);
            }
            // The lease may have ended meanwhile, and the key with it.
            Ok(made && self.heart.lease() == lease)
        };
        self.number(now_ms, enter).map_err(self.failed("take part in"))
    }

    fn present(&self) -> Result<Vec<Present>> {
        let failed = self.failed("read");
        let prefix = self.keys.key("member/");
        let ranges = [range(self.keys.key("lead")), below(prefix.clone())];
        let [lead, found] = self.client.look(ranges).map_err(&failed)?;
        parsed(&prefix, lead.first(), &found).map_err(&failed)
    }

    fn engine(&self) -> String {
        self.engine.clone()
    }
}
