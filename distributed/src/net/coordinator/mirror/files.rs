//! The files of a mirrored folder: looked at, read, and put in place.

use super::Listing;
use crate::control::files;
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The file that each machine makes for itself, with what it found out about other files.
const OWN: &str = "entry.json";
/// Where files lie until they are whole, and then until they are put in place. No model's name
/// begins with a dot.
const PARTS: &str = ".mirror/parts";
const WHOLE: &str = ".mirror/whole";
/// The list of files that folder and document last had in common.
const COMMON: &str = ".mirrored.json";
const COMMON_BYTES_MAX: u64 = 16 << 20;
/// `NAME/VERSION/…`, with folders of weights.
const DEPTH_MAX: usize = 8;
const FILES_MAX: usize = 10_000;
/// A file that was written to sooner may not be whole yet.
const SETTLES: Duration = Duration::from_secs(2);

/// A folder, and what is known of its files.
pub(super) struct Folder {
    root: PathBuf,
    /// Kept because hashing large files takes long.
    known: BTreeMap<String, Known>,
}

struct Known {
    bytes: u64,
    modified: Option<SystemTime>,
    sha256: String,
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::file(what, path.clone(), error)
}

/// Whether a path of a listing stays in the folder.
pub(super) fn is_plain(path: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.len() <= 255
            && !part.contains(['\\', '\0', ':'])
    };
    path.split('/').count() <= DEPTH_MAX
        && path.split('/').all(is_part)
        && path.rsplit('/').next() != Some(OWN)
}

impl Folder {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: BTreeMap::new() }
    }

    /// The error that says why the folder is left alone.
    pub(super) fn refused(&self, reason: &str) -> Error {
        failed("mirror", &self.root)(io::Error::other(reason.to_owned()))
    }

    /// The files that folder and document last had in common.
    pub(super) fn remembered(&self) -> Result<Listing> {
        let at = self.root.join(COMMON);
        let bytes = match files::read_bounded(&at, COMMON_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Listing::new()),
            Err(error) => return Err(failed("read", &at)(error)),
        };
        // Without the list, the document counts.
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub(super) fn remember(&self, common: &Listing) -> Result<()> {
        let at = self.root.join(COMMON);
        let bytes =
            serde_json::to_vec(common).map_err(|error| failed("write", &at)(error.into()))?;
        files::write_private(&at, &bytes).map_err(failed("write", &at))
    }

    /// The digest of each file, and whether no file was written to a moment ago.
    pub(super) fn look(&mut self) -> Result<(Listing, bool)> {
        let mut paths = Vec::new();
        if !self.root.is_dir() {
            return Err(self.refused("it is not there: is its disk mounted?"));
        }
        walk(&self.root, "", &mut paths)?;
        let mut known = BTreeMap::new();
        let mut settled = true;
        for path in paths {
            let at = self.root.join(&path);
            let about = match fs::metadata(&at) {
                Ok(about) => about,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("read", &at)(error)),
            };
            let (bytes, modified) = (about.len(), about.modified().ok());
            let age = modified.and_then(|at| SystemTime::now().duration_since(at).ok());
            // A file from the future was written by another clock.
            settled &= age.is_none_or(|age| age >= SETTLES);
            let same = |it: &Known| it.bytes == bytes && it.modified == modified;
            let sha256 = match self.known.remove(&path).filter(same) {
                Some(it) => it.sha256,
                None => hash(&at)?,
            };
            known.insert(path, Known { bytes, modified, sha256 });
        }
        self.known = known;
        let listing = self.known.iter().map(|(path, it)| (path.clone(), it.sha256.clone()));
        Ok((listing.collect(), settled))
    }

    /// A part of a file with a digest.
    pub(super) fn part(&self, sha256: &str, offset: u64, most: usize) -> Result<Option<Vec<u8>>> {
        let Some((path, _)) = self.known.iter().find(|(_, it)| it.sha256 == sha256) else {
            return Ok(None);
        };
        let at = self.root.join(path);
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&at)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            file.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &at)(error)),
        }
    }

    fn whole(&self, path: &str) -> PathBuf {
        self.root.join(WHOLE).join(path)
    }

    /// Writes a part of a file that is to be placed; the last part is checked with all parts before.
    pub(super) fn stage(
        &self,
        path: &str,
        sha256: &str,
        offset: u64,
        part: &[u8],
        is_last: bool,
    ) -> Result<()> {
        let is_digest = sha256.len() == 64 && sha256.bytes().all(|c| c.is_ascii_hexdigit());
        if !is_plain(path) || !is_digest {
            return Err(self.refused(&format!("{path:?}, {sha256:?} is no file in it")));
        }
        let at = self.root.join(PARTS).join(sha256);
        let write = || {
            if let Some(folder) = at.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file =
                File::options().create(true).truncate(offset == 0).write(true).open(&at)?;
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(part)?;
            if is_last { file.sync_all() } else { Ok(()) }
        };
        write().map_err(failed("write", &at))?;
        if is_last && hash(&at)? != sha256 {
            let reason = "what came has another digest: it was changed meanwhile";
            let _ = fs::remove_file(&at);
            return Err(failed("fetch", &at)(io::Error::other(reason)));
        }
        if is_last { rename(&at, &self.whole(path)) } else { Ok(()) }
    }

    /// Puts files that came in their places, and removes others; returns which were placed. A new
    /// version is placed only with all of its files.
    pub(super) fn place(
        &self,
        got: &Listing,
        gone: &[String],
        wanted: &Listing,
    ) -> Result<BTreeSet<String>> {
        for path in gone.iter().filter(|path| is_plain(path)) {
            self.remove(path)?;
        }
        let version = |path: &str| {
            let mut parts = path.split('/');
            let (name, version) = (parts.next()?, parts.next()?);
            parts.next().map(|_| format!("{name}/{version}"))
        };
        let versions: BTreeSet<String> = got.keys().filter_map(|path| version(path)).collect();
        let is_new = |version: &&String| !self.root.join(version).exists();
        let (new, _): (BTreeSet<&String>, BTreeSet<&String>) = versions.iter().partition(is_new);
        let mut placed = BTreeSet::new();
        for whole in new.iter().filter(|whole| {
            let of_it = |path: &&String| version(path).as_ref() == Some(**whole);
            wanted.keys().filter(of_it).all(|path| got.contains_key(path))
        }) {
            rename(&self.whole(whole), &self.root.join(whole))?;
            let of_it = |path: &&String| version(path).as_ref() == Some(*whole);
            placed.extend(got.keys().filter(of_it).cloned());
        }
        for path in got.keys() {
            if version(path).is_none_or(|version| !new.contains(&version)) {
                rename(&self.whole(path), &self.root.join(path))?;
                placed.insert(path.clone());
            }
        }
        Ok(placed)
    }

    /// Removes a file, and the folders that are empty then.
    fn remove(&self, path: &str) -> Result<()> {
        let at = self.root.join(path);
        match fs::remove_file(&at) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("remove", &at)(error));
            }
            _ => {}
        }
        let mut folder = at.parent();
        while let Some(at) = folder.filter(|at| *at != self.root) {
            // Findings about files that are gone are of no use.
            let is_own =
                |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|it| it.file_name() == OWN);
            if fs::read_dir(at).is_ok_and(|mut entries| entries.all(is_own)) {
                let _ = fs::remove_file(at.join(OWN));
            }
            // A folder that is not empty stays.
            if fs::remove_dir(at).is_err() {
                break;
            }
            folder = at.parent();
        }
        Ok(())
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    let place = || {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::rename(from, to)
    };
    place().map_err(failed("write", to))
}

fn walk(root: &Path, below: &str, paths: &mut Vec<String>) -> Result<()> {
    let folder = root.join(below);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("read", &folder)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed("read", &folder))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if !is_plain(&path) {
            continue;
        }
        let kind = entry.file_type().map_err(failed("read", &folder))?;
        if kind.is_dir() {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
        if paths.len() > FILES_MAX {
            let reason = format!("it has more than {FILES_MAX} files");
            return Err(failed("read", root)(io::Error::other(reason)));
        }
    }
    Ok(())
}

fn hash(path: &Path) -> Result<String> {
    let hashed = || -> io::Result<String> {
        let (mut file, mut hash) = (File::open(path)?, Sha256::new());
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                return Ok(hex::encode(hash.finalize()));
            }
            hash.update(&buffer[..count]);
        }
    };
    hashed().map_err(failed("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_folder() {
        for path in ["a", "digits/1/model.onnx", "a/1/weights/b.bin", "aliases.json"] {
            assert!(is_plain(path), "{path}");
        }
        let deep = ["a"; DEPTH_MAX + 1].join("/");
        for path in
            ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a/1/entry.json", "a\\b", &deep]
        {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn what_is_not_what_was_asked_for_is_not_placed() {
        let folder = tempfile::tempdir().expect("a folder");
        let it = Folder::new(folder.path());
        let refused = it.stage("a/1/x", &"0".repeat(64), 0, b"other", true).expect_err("another");
        assert!(refused.to_string().contains("another digest"), "{refused}");
        it.stage("../x", &"0".repeat(64), 0, b"", true).expect_err("outside");
        it.stage("x", "../../x", 0, b"", true).expect_err("no digest");
        assert!(!folder.path().join("a").exists());
    }

    #[test]
    fn a_version_comes_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let it = Folder::new(folder.path());
        let sha256 = |bytes: &[u8]| hex::encode(Sha256::digest(bytes));
        let file = |path: &str, bytes: &[u8]| (path.to_owned(), sha256(bytes));
        let wanted: Listing = [file("a/1/x", b"x"), file("a/1/w/y", b"y"), file("b", b"b")].into();
        it.stage("a/1/x", &sha256(b"x"), 0, b"x", true).expect("whole");
        it.stage("b", &sha256(b"b"), 0, b"b", true).expect("whole");
        let some: Listing = [file("a/1/x", b"x"), file("b", b"b")].into();
        let placed = it.place(&some, &[], &wanted).expect("ours");
        assert_eq!(placed, ["b".to_owned()].into());
        assert!(!folder.path().join("a").exists() && folder.path().join("b").exists());
        it.stage("a/1/w/y", &sha256(b"y"), 0, b"y", true).expect("whole");
        let all: Listing = [file("a/1/x", b"x"), file("a/1/w/y", b"y")].into();
        assert_eq!(it.place(&all, &[], &wanted).expect("ours").len(), 2);
        assert!(folder.path().join("a/1/w/y").exists() && folder.path().join("a/1/x").exists());
        it.remember(&wanted).expect("ours");
        assert_eq!(it.remembered().expect("ours"), wanted);
    }
}
