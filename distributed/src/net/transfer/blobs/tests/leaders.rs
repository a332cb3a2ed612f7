//! Leaders that follow one another on one store; the earlier ones do not know yet that they were
//! deposed. Each order of events is one in which a name that two of them write would lose bytes.

use super::laws::{Run, run, swept};
use super::shaky::Shaky;
use crate::net::transfer::blobs::names::Names;
use crate::net::transfer::blobs::{BlobStore, Unread, shared};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;

const EPOCHS: [u64; 3] = [10, 20, 30];

/// A leader opens the log, whose records name these digests.
pub(super) async fn lead(way: &Shaky, epoch: u64, used: &[[u8; 32]]) -> Arc<BlobStore> {
    try_lead(way, epoch, used).await.unwrap()
}

pub(super) async fn try_lead(
    way: &Shaky,
    epoch: u64,
    used: &[[u8; 32]],
) -> crate::Result<Arc<BlobStore>> {
    let (way, used, runtime) = (Arc::new(way.clone()), used.to_vec(), Handle::current());
    let opening = tokio::task::spawn_blocking(move || {
        BlobStore::open_in(way, "shared", Names::new(epoch, &EPOCHS), used.into_iter(), runtime)
    });
    opening.await.unwrap()
}

async fn has(store: &Arc<BlobStore>, Run { tensors, apart, .. }: &Run) {
    assert!(store.load(apart.clone()).await.as_ref() == Ok(tensors));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_arrives_late_removes_nothing_of_the_next_leader() {
    let (first_way, it) = (Shaky::default(), run(1, 1_000));
    let blob = it.apart.blob;
    let first = lead(&first_way, 10, &[]).await;
    first.put(blob, it.parts.clone()).await.unwrap().keep();
    // No task of the log needs the file any more, and its removal takes its time.
    first_way.faults().late = Some(String::new());
    first.release(blob.sha256);
    swept(&first).await;
    assert_eq!(first_way.files().await.len(), 1);

    let second = lead(&first_way.other(), 20, &[]).await;
    second.put(blob, it.parts.clone()).await.unwrap().keep();
    assert_eq!(first_way.arrive().await, 1);
    has(&second, &it).await;
    swept(&second).await;
    has(&second, &it).await;
    assert_eq!(first_way.files().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_arrives_late_removes_nothing_of_the_same_leader() {
    let (way, it) = (Shaky::default(), run(1, 1_000));
    let store = lead(&way, 10, &[]).await;
    store.put(it.apart.blob, it.parts.clone()).await.unwrap().keep();
    way.faults().late = Some(String::new());
    store.release(it.apart.blob.sha256);
    swept(&store).await;
    way.faults().late = None;
    store.put(it.apart.blob, it.parts.clone()).await.unwrap().keep();
    assert_eq!(way.arrive().await, 1);
    has(&store, &it).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opening_that_is_late_removes_nothing_of_the_next_leader() {
    let (way, it) = (Shaky::default(), run(1, 1_000));
    let blob = it.apart.blob;
    lead(&way, 10, &[]).await.put(blob, it.parts.clone()).await.unwrap().keep();
    // A file that no record names is to be removed, and is not yet.
    let second_way = way.other();
    second_way.faults().late = Some(hex::encode(blob.sha256));
    let second = lead(&second_way, 20, &[]).await;
    swept(&second).await;
    // The next leader finds the file but must not rely on it: the one before may be removing it.
    let mut found = HashMap::new();
    shared::look(&way.other(), &Names::new(30, &EPOCHS), &mut found).await.unwrap();
    assert!(!found[&blob.sha256].copies.is_whole());
    let third = lead(&way.other(), 30, &[]).await;
    third.put(blob, it.parts.clone()).await.unwrap().keep();
    assert_eq!(second_way.arrive().await, 1);
    has(&third, &it).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_deposed_leader_was_writing_may_go_and_harms_nobody() {
    let (first_way, it) = (Shaky::default(), run(1, 1_000));
    let blob = it.apart.blob;
    let first = lead(&first_way, 10, &[]).await;
    // Written, but the log has not heard of it.
    let claim = first.put(blob, it.parts.clone()).await.unwrap();
    let second = lead(&first_way.other(), 20, &[]).await;
    swept(&second).await;
    assert!(first_way.files().await.is_empty(), "no record names it");
    second.put(blob, it.parts.clone()).await.unwrap().keep();
    // The log refuses the deposed leader, which removes the file that it wrote.
    drop(claim);
    swept(&first).await;
    has(&second, &it).await;
    // The next leader finds the file that the deposed one writes now, and removes it.
    first.put(blob, it.parts.clone()).await.unwrap().keep();
    has(&second, &it).await;
    assert_eq!(first_way.files().await.len(), 2);
    let third = lead(&first_way.other(), 30, &[]).await;
    swept(&third).await;
    assert!(first_way.files().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_record_names_outlives_the_refusals_of_a_deposed_leader() {
    let (first_way, it) = (Shaky::default(), run(1, 1_000));
    let blob = it.apart.blob;
    let first = lead(&first_way, 10, &[]).await;
    first.put(blob, it.parts.clone()).await.unwrap().keep();
    let second = lead(&first_way.other(), 20, &[blob.sha256]).await;
    // Another task of the deposed leader, with the same tensors: sent before and after.
    for _ in 0..2 {
        let claim = first.put(blob, it.parts.clone()).await.unwrap();
        drop(claim);
        swept(&first).await;
        has(&second, &it).await;
    }
    // The same as a task of the next leader, which shares the file and then does not need it.
    drop(second.put(blob, it.parts.clone()).await.unwrap());
    swept(&second).await;
    has(&second, &it).await;
    assert_eq!(first_way.files().await.len(), 1);
    second.release(blob.sha256);
    swept(&second).await;
    assert!(first_way.files().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_what_the_log_has_removes_nothing() {
    let (first_way, it) = (Shaky::default(), run(1, 1_000));
    let blob = it.apart.blob;
    let first = lead(&first_way, 10, &[]).await;
    let claim = first.put(blob, it.parts.clone()).await.unwrap();
    // The log broke while it was asked to keep the task: it may have kept it.
    first.keep_all();
    drop(claim);
    swept(&first).await;
    has(&lead(&first_way.other(), 20, &[blob.sha256]).await, &it).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_others_are_left_alone() {
    let (way, it) = (Shaky::default(), run(1, 1_000));
    let blob = it.apart.blob;
    // Files of another log's coordinator, and of a later leader that this one does not know of.
    for epoch in [15, 30] {
        let names = Names::new(epoch, &[]);
        let arc = Arc::new(way.other());
        let other = tokio::task::spawn_blocking({
            let runtime = Handle::current();
            move || BlobStore::open_in(arc, "shared", names, std::iter::empty(), runtime)
        });
        let other = other.await.unwrap().unwrap();
        other.put(blob, it.parts.clone()).await.unwrap().keep();
    }
    assert_eq!(way.files().await.len(), 2);
    let store = lead(&way, 20, &[]).await;
    swept(&store).await;
    store.put(blob, it.parts.clone()).await.unwrap().keep();
    store.release(blob.sha256);
    swept(&store).await;
    assert_eq!(way.files().await.len(), 2);
    let gone = store.load(it.apart.clone()).await;
    assert!(matches!(gone, Err(Unread::Lost(_))), "{gone:?}");
}
