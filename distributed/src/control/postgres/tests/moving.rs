//! Clusters that move to a database and back.

use super::{Server, authority, log, sql};
use crate::control::machines::{SOON, known, task, until};
use crate::control::moving::tests::{check, folder, side};
use crate::net::coordinator::gate::Services;
use crate::{ClusterHome, Control, Coordinator, CoordinatorConfig, Error, Pki, Tokens};
use std::path::Path;
use std::time::Duration;

#[test]
fn the_laws_of_moving_are_obeyed() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(reason) => return println!("skipped: postgresql: {reason}"),
    };
    let database = |kind: &str, name: &str| {
        let schema = format!("{kind}_{name}");
        side(schema.clone(), authority(&server, &schema), log(&server, &schema))
    };
    let folders = tempfile::tempdir().expect("a folder");
    check(&|name| folder(&folders.path().join(name)), &|name| database("to", name));
    let folders = tempfile::tempdir().expect("a folder");
    check(&|name| database("from", name), &|name| folder(&folders.path().join(name)));
}

/// A home in a data folder, or in the database with its local files in the folder.
fn home(data: &Path, control: Option<&Control>) -> ClusterHome {
    ClusterHome {
        pki: data.join("pki"),
        journal: data.join("tasks.journal"),
        control: control.cloned(),
        blobs: None,
    }
}

async fn start(home: &ClusterHome) -> crate::Result<Coordinator> {
    let ClusterHome { pki, journal, control, .. } = home.clone();
    let pki = Pki::open_on(&pki, control.as_ref())?;
    let quic_addr = ([127, 0, 0, 1], 0).into();
    let config =
        CoordinatorConfig { quic_addr, journal: Some(journal), control, ..Default::default() };
    let tokens = Some(Tokens::open(&pki)?);
    let services = Services { tokens, ..Services::default() };
    let coordinator = Coordinator::start_with(config, &pki, services).await?;
    until("it leads", SOON, async || coordinator.leads()).await;
    Ok(coordinator)
}

async fn migrate(from: &ClusterHome, to: &ClusterHome) -> crate::Result<crate::Migrated> {
    let (from, to) = (from.clone(), to.clone());
    let migrating = tokio::task::spawn_blocking(move || from.migrate(&to, &mut |_| {}));
    migrating.await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinators_go_on_where_their_cluster_was_taken() {
    let server = match tokio::task::spawn_blocking(Server::start).await.expect("no panic") {
        Ok(server) => server,
        Err(reason) => return println!("skipped: postgresql: {reason}"),
    };
    let folders = tempfile::tempdir().expect("a folder");
    let (data, back) = (folders.path().join("data"), folders.path().join("back"));
    std::fs::create_dir(&data).expect("ours");
    let control = Control::new(server.address(), "moved").expect("a database");
    let (files, database) = (home(&data, None), home(&data, Some(&control)));
    let error = control.look().expect_err("there is nothing").to_string();
    assert!(error.contains("there is no cluster"), "{error}");

    let coordinator = start(&files).await.expect("free");
    let tasks = (0..20).map(|at| (task(&at.to_string()), vec![])).collect();
    let ids = coordinator.submit_all(tasks).await.expect("durable");
    coordinator.cancel(ids[3]).await.expect("it waits");
    let cancelled = async || known(&coordinator).await[3].1 == crate::TaskState::Cancelled;
    until("it is cancelled", SOON, cancelled).await;
    let tokens = coordinator.tokens().expect("given");
    tokens.create(1, Duration::from_secs(60)).expect("a token");
    let before = known(&coordinator).await;
    let error = migrate(&files, &database).await.expect_err("it runs");
    assert!(error.to_string().contains("a coordinator runs on the folder"), "{error}");
    coordinator.stop().await;

    let migrated = migrate(&files, &database).await.expect("free");
    assert_eq!((migrated.records, migrated.documents), (20, 2), "{migrated:?}");
    let error = start(&files).await.expect_err("it is elsewhere");
    assert!(matches!(error, Error::Moved { .. }), "{error}");
    let coordinator = start(&database).await.expect("whole");
    assert_eq!(known(&coordinator).await, before);
    assert_eq!(coordinator.tokens().expect("given").list().len(), 1);
    let again = coordinator.submit_all(vec![(task("7"), vec![])]).await.expect("known");
    assert_eq!(again, [ids[7]]);

    let view = control.look().expect("readable");
    assert_eq!((view.records, view.coordinators.len(), view.is_led), (20, 1, true), "{view:?}");
    assert!(view.coordinators[0].leads && view.engine.starts_with("PostgreSQL 1"), "{view:?}");
    assert_eq!(view.documents, ["revoked.json", "tokens.json"]);
    assert!(view.last_commit.is_some() && view.closed.is_none());
    let error = migrate(&database, &home(&back, None)).await.expect_err("it runs").to_string();
    let addr = coordinator.quic_addr();
    let part = format!("the coordinator at {addr}, which leads, runs on postgres://");
    assert!(error.contains(&part), "{error}");
    let error = start(&home(&back, None)).await.expect_err("half a copy");
    assert!(matches!(error, Error::Incomplete { .. }), "{error}");
    coordinator.stop().await;
    // Its process would drop it too.
    drop(coordinator);

    migrate(&database, &home(&back, None)).await.expect("free");
    let closed = control.look().expect("readable").closed.expect("it is elsewhere");
    assert!(closed.contains("was moved to the folder"), "{closed}");
    let error = start(&database).await.expect_err("it is elsewhere");
    assert!(matches!(error, Error::Moved { .. }), "{error}");
    let coordinator = start(&home(&back, None)).await.expect("whole");
    assert_eq!(known(&coordinator).await, before);
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_another_clusters_or_was_left_is_not_written_over() {
    let server = match tokio::task::spawn_blocking(Server::start).await.expect("no panic") {
        Ok(server) => server,
        Err(reason) => return println!("skipped: postgresql: {reason}"),
    };
    let folders = tempfile::tempdir().expect("a folder");
    let data = |name: &str| {
        let path = folders.path().join(name);
        std::fs::create_dir_all(&path).expect("ours");
        path
    };
    let at = |schema: &str| Control::new(server.address(), schema).expect("a database");
    let (one, two) = (home(&data("one"), None), home(&data("two"), None));
    for files in [&one, &two] {
        start(files).await.expect("free").stop().await;
    }
    let shared = at("shared");
    migrate(&one, &home(&data("one"), Some(&shared))).await.expect("free");
    let error = migrate(&two, &home(&data("two"), Some(&shared))).await.expect_err("one's");
    assert!(error.to_string().contains("belongs to the cluster with the fingerprint"), "{error}");
    let error = migrate(&home(&data("one"), Some(&shared)), &two).await.expect_err("two's");
    assert!(error.to_string().contains("has the authority of another cluster"), "{error}");
    let error = migrate(&home(&data("one"), Some(&shared)), &one).await.expect_err("it was left");
    assert!(error.to_string().contains("is not empty: it has"), "{error}");
    let error = start(&home(&data("one"), Some(&at("fresh")))).await.expect_err("it is elsewhere");
    assert!(matches!(error, Error::Moved { .. }), "{error}");
    let undo = one.clone();
    let to = tokio::task::spawn_blocking(move || undo.undo_migration()).await.expect("no panic");
    assert!(to.expect("it was moved").ends_with("schema shared"));
    start(&one).await.expect("as decided").stop().await;
    // A migration reports a log that loses a record on the way.
    let three = home(&data("three"), None);
    let coordinator = start(&three).await.expect("free");
    coordinator.submit_all(vec![(task("a"), vec![])]).await.expect("durable");
    coordinator.stop().await;
    tokio::task::block_in_place(|| {
        drop(authority(&server, "harm"));
        drop(crate::control::conformance::open(&log(&server, "harm"), 1).expect("free"));
        sql(
            &server,
            "SET search_path TO harm; DELETE FROM cluster; DELETE FROM epoch;
             UPDATE head SET lead = 0;
             CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 NEW.bytes = set_byte(NEW.bytes, 20, 255 - get_byte(NEW.bytes, 20)); RETURN NEW; END $$;
             CREATE TRIGGER harm BEFORE INSERT ON record FOR EACH ROW EXECUTE FUNCTION harm();",
        );
    });
    let error = migrate(&three, &home(&data("three"), Some(&at("harm")))).await.expect_err("bent");
    assert!(error.to_string().contains("checksum"), "{error}");
    start(&three).await.expect("it was not left").stop().await;
    let error = start(&home(&data("three"), Some(&at("harm")))).await.expect_err("half a copy");
    assert!(matches!(error, Error::Incomplete { .. }), "{error}");
}
