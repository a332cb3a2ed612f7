//! Laws that hold wherever the files lie.

use crate::net::transfer::blobs::{BlobStore, BlobsAt, Unread};
use crate::proto::image::Apart;
use crate::proto::message::TensorBlob;
use crate::proto::tensors::describe_any;
use bytes::Bytes;
use futures_util::TryStreamExt;
use lgp_memory::{NamedTensor, Tensor};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Where files lie.
#[derive(Clone)]
pub(crate) enum Site {
    Own(PathBuf),
    Shared(BlobsAt),
}

/// Epochs in which the log was opened.
const EPOCHS: [u64; 4] = [1, 2, 3, 4];

impl Site {
    pub(super) async fn open(&self, epoch: u64, used: Vec<[u8; 32]>) -> Arc<BlobStore> {
        let (site, runtime) = (self.clone(), Handle::current());
        let used = used.into_iter();
        let opening = tokio::task::spawn_blocking(move || match site {
            Self::Own(folder) => BlobStore::open(folder, used, runtime).map(Arc::new),
            Self::Shared(at) => BlobStore::open_shared(&at, (epoch, &EPOCHS), used, runtime),
        });
        opening.await.unwrap().unwrap()
    }

    /// A client of the place that bypasses all that is tested.
    fn store(&self) -> Arc<dyn ObjectStore> {
        match self {
            Self::Own(folder) => Arc::new(LocalFileSystem::new_with_prefix(folder).unwrap()),
            Self::Shared(at) => at.connect().unwrap(),
        }
    }

    /// The files of blobs.
    pub(crate) async fn files(&self) -> Vec<Key> {
        let listed = self.store().list(None).map_ok(|found| found.location);
        let found: Vec<Key> = listed.try_collect().await.unwrap();
        found.into_iter().filter(|name| name.as_ref() != "radeon-cluster").collect()
    }

    async fn replace(&self, bytes: Vec<u8>) {
        let files = self.files().await;
        assert_eq!(files.len(), 1, "{files:?}");
        self.store().put(&files[0], bytes.into()).await.unwrap();
    }
}

/// Tensors, and the blob that they are.
pub(super) struct Run {
    pub(super) tensors: Vec<NamedTensor>,
    pub(super) apart: Apart,
    pub(super) parts: Vec<Bytes>,
}

pub(super) fn run(seed: u8, count: usize) -> Run {
    let values: Vec<u8> = (0..count).map(|at| (at >> 8) as u8 ^ at as u8 ^ seed).collect();
    let one = NamedTensor::new("x", Tensor::from_slice([count], &values).unwrap());
    let other = NamedTensor::new("y", Tensor::from_slice([2], &[1_u8, seed]).unwrap());
    let tensors = vec![one, other];
    let (metas, _) = describe_any(&tensors).unwrap();
    let parts = vec![Bytes::from(values), Bytes::from(vec![1, seed])];
    let sha256 = Sha256::new().chain_update(&parts[0]).chain_update(&parts[1]).finalize().into();
    let blob = TensorBlob { sha256, bytes: count as u64 + 2 };
    Run { tensors, apart: Apart { blob, tensors: metas }, parts }
}

/// Waits until all released files are gone.
pub(super) async fn swept(blob_store: &Arc<BlobStore>) {
    Arc::clone(blob_store).sweep().await;
    drop(blob_store.open.write().await);
}

pub(super) async fn obeys(site: Site) {
    shares_and_removes(&site).await;
    outlives_its_leader(&site).await;
    notices_damage(&site).await;
}

async fn shares_and_removes(site: &Site) {
    let store = site.open(1, vec![]).await;
    // One request, and several requests, of which the last is short.
    for count in [1_000, (20 << 20) + 5] {
        let Run { tensors, apart, parts } = run(3, count);
        let blob = apart.blob;
        let first = store.put(blob, parts.clone()).await.unwrap();
        let second = store.put(blob, parts.clone()).await.unwrap();
        assert_eq!(site.files().await.len(), 1, "equal tensors share a file");
        assert!(store.load(apart.clone()).await == Ok(tensors));
        assert_eq!(store.read(blob, 0, 700).await, Ok(parts[0].slice(..700)));
        let tail = parts[0].slice(count - 5..);
        assert_eq!(store.read(blob, count as u64 - 5, 5).await, Ok(tail));
        drop(first);
        swept(&store).await;
        assert!(store.load(apart.clone()).await.is_ok(), "one still needs it");
        second.keep();
        store.release(blob.sha256);
        swept(&store).await;
        assert!(site.files().await.is_empty());
        let gone = store.load(apart).await;
        assert!(matches!(gone, Err(Unread::Lost(_))), "{gone:?}");
    }
    store.close().await;
    let Run { apart, parts, .. } = run(3, 1_000);
    assert!(matches!(store.put(apart.blob, parts).await, Err(crate::Error::Stopped)));
}

async fn outlives_its_leader(site: &Site) {
    let (kept, left) = (run(1, 50_000), run(2, 50_000));
    let first = site.open(2, vec![]).await;
    for Run { apart, parts, .. } in [&kept, &left] {
        first.put(apart.blob, parts.clone()).await.unwrap().keep();
    }
    first.close().await;
    assert_eq!(site.files().await.len(), 2);
    let second = site.open(3, vec![kept.apart.blob.sha256; 2]).await;
    swept(&second).await;
    assert_eq!(site.files().await.len(), 1, "what no record names goes");
    assert!(second.load(kept.apart.clone()).await == Ok(kept.tensors));
    second.release(kept.apart.blob.sha256);
    swept(&second).await;
    assert_eq!(site.files().await.len(), 1);
    second.release(kept.apart.blob.sha256);
    swept(&second).await;
    assert!(site.files().await.is_empty());
    second.close().await;
}

async fn notices_damage(site: &Site) {
    let Run { tensors, apart, parts } = run(5, 5_000_000);
    let store = site.open(4, vec![]).await;
    let _claim = store.put(apart.blob, parts.clone()).await.unwrap();
    let sound: Vec<u8> = parts.concat();
    let mut flipped = sound.clone();
    flipped[4_500_000] ^= 1;
    let cases = [(flipped, "another digest"), (sound[..9].to_vec(), "it has 9 bytes, expected")];
    for (bytes, part) in cases {
        site.replace(bytes).await;
        let Err(Unread::Lost(what)) = store.load(apart.clone()).await else { panic!("{part}") };
        assert!(what.contains(part), "{what}");
    }
    site.replace(sound).await;
    assert!(store.load(apart.clone()).await == Ok(tensors), "whoever puts it back has it again");
    let files = site.files().await;
    site.store().delete(&files[0]).await.unwrap();
    for read in [store.read(apart.blob, 0, 9).await, store.read(apart.blob, 7, 9).await] {
        assert!(matches!(read, Err(Unread::Lost(_))), "{read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_beside_the_journal_obey_them() {
    let folder = tempfile::tempdir().unwrap();
    obeys(Site::Own(folder.path().join("inputs"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_a_shared_folder_obey_them() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/blobs", folder.path().display());
    obeys(Site::Shared(BlobsAt::new(&url, []).unwrap())).await;
}
