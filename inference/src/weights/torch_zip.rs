//! PyTorch since 1.6: a zip archive of a pickle and of its storages, one uncompressed entry each.

use super::torch::{Places, contents};
use super::{Contents, Fail, Format};
use std::io::Cursor;
use std::ops::Range;
use zip::{CompressionMethod, ZipArchive};

pub(super) const FORMAT: Format = Format { name: "PyTorch", detect, read };

const PICKLE: &str = "/data.pkl";

fn detect(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
}

fn read(bytes: &[u8]) -> Result<Contents, Fail> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| e.to_string())?;
    let mut entries = Vec::new();
    for index in 0..archive.len() {
        entries.push(stored(&mut archive, index, bytes.len())?);
    }
    let pickle = entries.iter().find(|(name, _)| name.ends_with(PICKLE));
    let Some((name, pickle)) = pickle else {
        return Err(Fail::Bad(format!("an archive without an entry *{PICKLE}")));
    };
    // Every entry lies in a folder with the file's name.
    let folder = name.strip_suffix(PICKLE).unwrap_or_default().to_owned();
    let mut places = Places::new();
    for (name, range) in &entries {
        let Some(inner) = name.strip_prefix(&folder).and_then(|rest| rest.strip_prefix('/')) else {
            continue;
        };
        if inner == "byteorder" && bytes.get(range.clone()).is_some_and(|order| order != b"little")
        {
            return Err(Fail::from("its numbers are big-endian, expected little-endian"));
        }
        if let Some(key) = inner.strip_prefix("data/") {
            places.insert(key.to_owned(), range.clone());
        }
    }
    let pickle = bytes.get(pickle.clone()).unwrap_or_default();
    contents(pickle, 0, |_| Ok(places))
}

/// Name and place of an entry.
fn stored(
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    index: usize,
    file_len: usize,
) -> Result<(String, Range<usize>), Fail> {
    let entry = archive.by_index_raw(index).map_err(|e| e.to_string())?;
    let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
    if entry.compression() != CompressionMethod::Stored || entry.encrypted() {
        let message = format!("entry '{name}' of the archive is compressed or encrypted");
        return Err(Fail::Bad(message + ", expected its bytes as they are"));
    }
    let start = entry.data_start().and_then(|start| usize::try_from(start).ok());
    let end = start.zip(usize::try_from(entry.size()).ok()).and_then(|(s, len)| s.checked_add(len));
    match start.zip(end).filter(|&(_, end)| end <= file_len) {
        Some((start, end)) => Ok((name, start..end)),
        None => Err(Fail::Bad(format!("entry '{name}' lies outside of the file"))),
    }
}
