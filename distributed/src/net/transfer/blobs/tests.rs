//! Files by digest that are written, shared, damaged and copied.

mod faults;
pub(crate) mod laws;
mod leaders;
#[cfg(feature = "scale")]
pub(crate) mod s3;
mod shaky;

use super::{BlobStore, Unread};
use crate::proto::message::TensorBlob;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// A store in a folder, and a blob for it.
fn store(folder: &std::path::Path) -> (Arc<BlobStore>, TensorBlob, Bytes) {
    let bytes = Bytes::from_static(b"some inputs");
    let blob = TensorBlob { sha256: Sha256::digest(&bytes).into(), bytes: 11 };
    let runtime = tokio::runtime::Handle::current();
    let blob_store = BlobStore::open(folder.join("inputs"), std::iter::empty(), runtime).unwrap();
    (Arc::new(blob_store), blob, bytes)
}

#[cfg(unix)]
#[tokio::test]
async fn only_files_that_are_gone_or_changed_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (blob_store, blob, bytes) = store(folder.path());
    let _claim = blob_store.put(blob, vec![bytes.clone()]).await.unwrap();
    let path = std::fs::read_dir(folder.path().join("inputs")).unwrap().next().unwrap();
    let path = path.unwrap().path();
    assert_eq!(blob_store.read(blob, 0, 11).await, Ok(bytes.clone()));
    assert_eq!(blob_store.read(blob, 5, 6).await, Ok(bytes.slice(5..)));
    // A name that leads to itself cannot be opened, which says nothing about the bytes.
    std::fs::rename(&path, folder.path().join("aside")).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    for at in [0, 5] {
        let failed = blob_store.read(blob, at, 6).await;
        assert!(matches!(failed, Err(Unread::Failed(_))), "{at}: {failed:?}");
    }
    std::fs::remove_file(&path).unwrap();
    for at in [0, 5] {
        let lost = blob_store.read(blob, at, 6).await;
        assert!(matches!(lost, Err(Unread::Lost(_))), "{at}: {lost:?}");
    }
    for (contents, at) in [("some", 0), ("some", 5), ("some input", 5), ("some inputs, more", 0)] {
        std::fs::write(&path, contents).unwrap();
        let lost = blob_store.read(blob, at, 6).await;
        assert!(matches!(lost, Err(Unread::Lost(_))), "{contents} {at}: {lost:?}");
    }
    std::fs::rename(folder.path().join("aside"), &path).unwrap();
    assert_eq!(blob_store.read(blob, 0, 11).await, Ok(bytes));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_leave_room_for_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (blob_store, blob, bytes) = store(folder.path());
    let disk = rustix::fs::statvfs(folder.path()).unwrap();
    let all = TensorBlob { bytes: disk.f_blocks * disk.f_frsize - (32 << 20), ..blob };
    let Err(error) = blob_store.put(all, vec![bytes.clone()]).await else {
        panic!("no disk has room for that and the reserve")
    };
    assert!(matches!(error, crate::Error::NotSaved { .. }), "{error}");
    assert!(error.to_string().contains("kept for the journal"), "{error}");
    assert!(std::fs::read_dir(folder.path().join("inputs")).unwrap().next().is_none());
    // The refused blob takes no room.
    blob_store.put(blob, vec![bytes]).await.unwrap().keep();
}

#[tokio::test]
async fn a_closed_store_writes_and_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (old, blob, bytes) = store(folder.path());
    old.put(blob, vec![bytes.clone()]).await.unwrap().keep();
    old.close().await;
    let refused = old.put(blob, vec![bytes]).await;
    assert!(matches!(refused, Err(crate::Error::Stopped)));
    // Another store has acknowledged the file since.
    old.release(blob.sha256);
    drop(old.pause().await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(std::fs::read_dir(folder.path().join("inputs")).unwrap().count(), 1);
}
