//! Clusters that move to both engines and back.

use super::{Nats, log};
use crate::control::etcd::tests::server::Etcd;
use crate::control::etcd::{EtcdAuthority, Keys};
use crate::control::moving::run;
use crate::control::moving::tests::{check, fill, folder, side};
use crate::{Control, Error};

#[test]
fn the_laws_of_moving_are_obeyed() {
    let engines = Etcd::start(1).and_then(|etcd| Ok((etcd, Nats::start(1)?)));
    let (etcd, nats) = match engines {
        Ok(engines) => engines,
        Err(reason) => return println!("skipped: etcd: {reason}"),
    };
    let pair = |name: &str| {
        let keys = Keys::new(etcd.endpoints().into(), name);
        side(name, EtcdAuthority::open(keys, "one").expect("reachable"), log(&nats, name))
    };
    let folders = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder(&folders.path().join(name));
    check(&at, &|name| pair(&format!("to_{name}")));
    let folders = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder(&folders.path().join(name));
    check(&|name| pair(&format!("from_{name}")), &at);

    let address =
        format!("etcd://{},nats://{}", etcd.endpoints().join(","), nats.addresses().join(","));
    let look = |name: &str| Control::new(&address, name).expect("both").look();
    let error = look("nothing").expect_err("there is none");
    assert!(matches!(error, Error::Control { .. }), "{error}");
    fill(&pair("looked"), 30);
    run(&pair("looked"), &at("elsewhere"), &mut |_| Ok(())).expect("free");
    let view = look("looked").expect("readable");
    assert_eq!((view.records, view.cluster.as_deref()), (30, Some("one")), "{view:?}");
    assert_eq!(view.documents, ["keys.json", "revoked.json", "tokens.json"]);
    assert!(view.last_commit.is_some() && view.closed.is_some(), "{view:?}");
    assert!(view.engine.contains("etcd 3.") && view.engine.contains("NATS 2."), "{view:?}");
}
