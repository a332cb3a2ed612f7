//! A store in memory with a bad network before it: answers are lost, requests arrive late.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// What goes wrong from now on.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Writes are done, but their answers are lost.
    pub(super) puts_unanswered: bool,
    /// Writes and removals of names that begin with this are delayed, and their answers are lost.
    pub(super) late: Option<String>,
    waiting: Vec<(Path, Option<PutPayload>)>,
    /// Most parts of an upload that arrive.
    pub(super) parts_max: Option<usize>,
    /// Uploads of several parts that were begun, and that were given up.
    pub(super) uploads: (usize, usize),
    /// Reading breaks.
    pub(super) reads_broken: bool,
    /// Another, empty place is there instead.
    pub(super) elsewhere: bool,
}

impl Faults {
    fn is_late(&self, name: &Path) -> bool {
        self.late.as_ref().is_some_and(|late| name.as_ref().starts_with(late))
    }
}

/// The client of one leader: its own way to a store that others have too.
#[derive(Debug, Clone, Default)]
pub(super) struct Shaky {
    pub(super) inner: Arc<InMemory>,
    faults: Arc<Mutex<Faults>>,
}

impl Shaky {
    /// Another way to the same store.
    pub(super) fn other(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), faults: Arc::default() }
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap()
    }

    /// Delayed requests arrive, the last one first.
    pub(super) async fn arrive(&self) -> usize {
        let waiting = std::mem::take(&mut self.faults().waiting);
        let count = waiting.len();
        for (name, payload) in waiting.into_iter().rev() {
            match payload {
                Some(payload) => drop(self.inner.put(&name, payload).await.unwrap()),
                None => drop(self.inner.delete(&name).await),
            }
        }
        count
    }

    /// The files of blobs.
    pub(super) async fn files(&self) -> Vec<String> {
        let listed = self.inner.list(None).map_ok(|found| found.location.to_string());
        let found: Vec<String> = listed.try_collect().await.unwrap();
        found.into_iter().filter(|name| name != "radeon-cluster").collect()
    }
}

fn unanswered() -> Error {
    Error::Generic { store: "shaky", source: "no answer".into() }
}

fn missing(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "nothing there".into() }
}

impl fmt::Display for Shaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shaky")
    }
}

#[async_trait]
impl ObjectStore for Shaky {
    async fn put_opts(&self, to: &Path, what: PutPayload, how: PutOptions) -> Result<PutResult> {
        if self.faults().is_late(to) {
            self.faults().waiting.push((to.clone(), Some(what)));
            return Err(unanswered());
        }
        let put = self.inner.put_opts(to, what, how).await?;
        if self.faults().puts_unanswered { Err(unanswered()) } else { Ok(put) }
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.faults().uploads.0 += 1;
        let inner = self.inner.put_multipart_opts(to, how).await?;
        Ok(Box::new(ShakyUpload { inner, sent: 0, shaky: self.clone() }))
    }

    async fn get_opts(&self, at: &Path, how: GetOptions) -> Result<GetResult> {
        if self.faults().elsewhere {
            return Err(missing(at));
        }
        if self.faults().reads_broken && !how.head {
            return Err(unanswered());
        }
        self.inner.get_opts(at, how).await
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (inner, shaky) = (Arc::clone(&self.inner), self.clone());
        let remove = move |name: Path| {
            let (inner, shaky) = (Arc::clone(&inner), shaky.clone());
            async move {
                if shaky.faults().is_late(&name) {
                    shaky.faults().waiting.push((name, None));
                    return Err(unanswered());
                }
                inner.delete(&name).await.map(|()| name)
            }
        };
        names.and_then(remove).boxed()
    }

    fn list(&self, below: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(below)
    }

    async fn list_with_delimiter(&self, below: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(below).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, how).await
    }
}

#[derive(Debug)]
struct ShakyUpload {
    inner: Box<dyn MultipartUpload>,
    sent: usize,
    shaky: Shaky,
}

#[async_trait]
impl MultipartUpload for ShakyUpload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.sent += 1;
        match self.shaky.faults().parts_max {
            Some(parts_max) if self.sent > parts_max => async { Err(unanswered()) }.boxed(),
            _ => self.inner.put_part(part),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let put = self.inner.complete().await?;
        if self.shaky.faults().puts_unanswered { Err(unanswered()) } else { Ok(put) }
    }

    async fn abort(&mut self) -> Result<()> {
        self.shaky.faults().uploads.1 += 1;
        self.inner.abort().await
    }
}
