//! A shared store whose answers are lost or cut short, that is full, or not there.

use super::laws::{Run, run, swept};
use super::leaders::{lead, try_lead};
use super::shaky::Shaky;
use crate::Error;
use crate::net::transfer::blobs::{BlobsAt, Unread};
use object_store::ObjectStoreExt;

/// Bytes enough for an upload in several pieces.
const LARGE: usize = (20 << 20) + 1;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_counts_for_nothing() {
    for count in [1_000, LARGE] {
        let (way, Run { tensors, apart, parts }) = (Shaky::default(), run(1, count));
        let store = lead(&way, 10, &[]).await;
        way.faults().puts_unanswered = true;
        let refused = store.put(apart.blob, parts.clone()).await.err();
        assert!(matches!(refused, Some(Error::NotSaved { .. })), "{refused:?}");
        swept(&store).await;
        assert!(way.files().await.is_empty(), "{:?}", way.files().await);
        way.faults().puts_unanswered = false;
        store.put(apart.blob, parts).await.unwrap().keep();
        assert!(store.load(apart).await == Ok(tensors));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_arrives_after_it_was_given_up_is_swept_by_the_next_leader() {
    let (way, Run { apart, parts, .. }) = (Shaky::default(), run(1, 1_000));
    let store = lead(&way, 10, &[]).await;
    way.faults().late = Some(String::new());
    assert!(store.put(apart.blob, parts).await.is_err());
    swept(&store).await;
    way.faults().late = None;
    // The removal arrives before the file that it was to remove.
    assert_eq!(way.arrive().await, 2);
    let next = lead(&way.other(), 20, &[]).await;
    swept(&next).await;
    assert!(way.files().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_is_given_up() {
    for parts_max in 0..3 {
        let (way, Run { apart, parts, .. }) = (Shaky::default(), run(1, LARGE));
        let store = lead(&way, 10, &[]).await;
        way.faults().parts_max = Some(parts_max);
        let refused = store.put(apart.blob, parts).await.err();
        assert!(matches!(refused, Some(Error::NotSaved { .. })), "{parts_max}: {refused:?}");
        assert_eq!(way.faults().uploads, (1, 1), "{parts_max}");
        swept(&store).await;
        assert!(way.files().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_now_is_not_lost() {
    let (way, Run { tensors, apart, parts }) = (Shaky::default(), run(1, 100_000));
    let store = lead(&way, 10, &[]).await;
    store.put(apart.blob, parts).await.unwrap().keep();
    let broken: [fn(&Shaky); 2] =
        [|way| way.faults().reads_broken = true, |way| way.faults().elsewhere = true];
    for breaks in broken {
        breaks(&way);
        let loaded = store.load(apart.clone()).await.err();
        let read = [store.read(apart.blob, 0, 9).await, store.read(apart.blob, 5, 9).await];
        for failed in read.into_iter().map(Result::err).chain([loaded]) {
            assert!(matches!(failed, Some(Unread::Failed(_))), "{failed:?}");
        }
        *way.faults() = super::shaky::Faults::default();
        assert!(store.load(apart.clone()).await.as_ref() == Ok(&tensors));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_list_did_not_show_is_looked_for_again() {
    let (way, Run { tensors, apart, parts }) = (Shaky::default(), run(1, 1_000));
    lead(&way, 10, &[]).await.put(apart.blob, parts).await.unwrap().keep();
    let second = way.other();
    // A listing from the time when there was the marker alone.
    let found = way.files().await;
    let name = object_store::path::Path::from(found[0].as_str());
    let bytes = way.inner.get(&name).await.unwrap().bytes().await.unwrap();
    way.inner.delete(&name).await.unwrap();
    let store = lead(&second, 20, &[apart.blob.sha256]).await;
    way.inner.put(&name, bytes.into()).await.unwrap();
    assert!(store.load(apart.clone()).await == Ok(tensors));
    store.release(apart.blob.sha256);
    swept(&store).await;
    assert!(way.files().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_without_the_files_of_a_log_is_refused() {
    let (way, Run { apart, .. }) = (Shaky::default(), run(1, 1_000));
    let refused = try_lead(&way, 10, &[apart.blob.sha256]).await.err();
    let Some(Error::Blobs { place, reason }) = refused else { panic!("{refused:?}") };
    assert!(place == "shared" && reason.contains("not mounted"), "{reason}");
    assert!(way.files().await.is_empty(), "nothing was written");
    // An operator who says that it is the right store goes on without the files.
    way.inner.put(&"radeon-cluster".into(), "x".into()).await.unwrap();
    let store = lead(&way, 10, &[apart.blob.sha256]).await;
    assert!(matches!(store.load(apart).await, Err(Unread::Lost(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_being_written_to_a_folder_goes_with_the_next_leader() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/blobs", folder.path().display());
    let site = super::laws::Site::Shared(BlobsAt::new(&url, []).unwrap());
    site.open(1, vec![]).await;
    let blobs = folder.path().join("blobs");
    let digest = "ab".repeat(32);
    // Half a file of an earlier leader, and of an unknown one.
    for name in [format!("{digest}.1.7#1"), format!("{digest}.9.7#1")] {
        std::fs::write(blobs.join(name), "half").unwrap();
    }
    site.open(2, vec![]).await;
    assert!(!blobs.join(format!("{digest}.1.7#1")).exists());
    assert!(blobs.join(format!("{digest}.9.7#1")).exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = blobs.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "made for its owner alone");
    }
}

#[test]
fn what_is_no_place_is_refused() {
    let key = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "top-secret")];
    let cases = [
        ("file://share", &key[..], "the whole path of a folder"),
        ("file:///", &key[..], "the whole path of a folder"),
        ("/mnt/share", &key[..], "expected file:///FOLDER or s3://BUCKET/PREFIX"),
        ("https://bucket", &key[..], "expected file:///FOLDER or s3://BUCKET/PREFIX"),
        ("file:///mnt/share", &[("AWS_SECRET", "top-secret")][..], "AWS_SECRET is no option"),
        #[cfg(feature = "scale")]
        ("s3://", &key[..], "no name of a bucket"),
        #[cfg(feature = "scale")]
        ("s3://bucket//prefix", &key[..], "the prefix"),
        #[cfg(feature = "scale")]
        ("s3://bucket", &key[..1], "set AWS_SECRET_ACCESS_KEY"),
        #[cfg(feature = "scale")]
        ("s3://bucket", &[], "set AWS_ACCESS_KEY_ID"),
        #[cfg(not(feature = "scale"))]
        ("s3://bucket", &key[..], "without the feature scale"),
    ];
    for (url, options, part) in cases {
        let refused = BlobsAt::new(url, options.iter().copied());
        let refused = refused.expect_err(url).to_string();
        assert!(refused.contains(part) && !refused.contains("top-secret"), "{url}: {refused}");
    }
    #[cfg(feature = "scale")]
    {
        let at = BlobsAt::new("s3://bucket/prefix/", key).expect("a place");
        let shown = format!("{at:?}");
        assert!(shown.contains("s3://bucket/prefix") && !shown.contains("secret"), "{shown}");
    }
}
