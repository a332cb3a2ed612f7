//! GGUF, versions 2 and 3: notes, a list of tensors, then the tensors' bytes, most of them
//! quantised in blocks.

use super::bytes::{Cursor, text};
use super::entry::{Encoding, Entry};
use super::quants::QUANTS;
use super::{Contents, Fail, Format};
use lgp_memory::DType;

pub(super) const FORMAT: Format = Format { name: "GGUF", detect, read };

const MAGIC: &[u8] = b"GGUF";
/// If no note gives another alignment, tensors begin at multiples of this many bytes.
const ALIGNMENT: usize = 32;
/// The deepest nesting of arrays that is read.
const DEPTH_MAX: usize = 4;
/// The format's own limit.
const RANK_MAX: usize = 4;

fn detect(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

fn read(bytes: &[u8]) -> Result<Contents, Fail> {
    let mut cursor = Cursor::new(bytes);
    cursor.skip(MAGIC.len())?;
    let version = cursor.u32()?;
    if !(2..=3).contains(&version) {
        return Err(Fail::Bad(format!("version {version}, expected 2 or 3, little-endian")));
    }
    let (tensors, notes) = (cursor.count()?, cursor.count()?);
    let mut contents = Contents::default();
    let mut alignment = ALIGNMENT;
    for _ in 0..notes {
        let key = string(&mut cursor)?;
        let kind = cursor.u32()?;
        let value = value(&mut cursor, kind, 0)?;
        if key == "general.alignment" {
            let given = value.parse().ok().filter(|&n: &usize| n > 0);
            alignment =
                given.ok_or_else(|| format!("an alignment of {value}, expected 1 or more"))?;
        }
        contents.metadata.insert(key.to_owned(), value);
    }
    let mut infos = Vec::new();
    for _ in 0..tensors {
        infos.push(Info::read(&mut cursor)?);
    }
    let start = cursor.position().checked_next_multiple_of(alignment);
    let start = start.ok_or_else(|| format!("an alignment of {alignment} is too large"))?;
    for info in infos {
        let name = info.name.to_owned();
        let entry = info.entry(start)?;
        if contents.entries.insert(name, entry).is_some() {
            return Err(Fail::Bad(format!("tensor '{}' is there twice", info.name)));
        }
    }
    Ok(contents)
}

fn string<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Fail> {
    let len = cursor.count()?;
    text(cursor.take(len)?)
}

/// A note's value as text; for an array, only its length.
fn value(cursor: &mut Cursor<'_>, kind: u32, depth: usize) -> Result<String, Fail> {
    Ok(match kind {
        0 => cursor.u8()?.to_string(),
        1 => i8::from_le_bytes(cursor.array()?).to_string(),
        2 => u16::from_le_bytes(cursor.array()?).to_string(),
        3 => i16::from_le_bytes(cursor.array()?).to_string(),
        4 => cursor.u32()?.to_string(),
        5 => i32::from_le_bytes(cursor.array()?).to_string(),
        6 => f32::from_le_bytes(cursor.array()?).to_string(),
        7 => (cursor.u8()? != 0).to_string(),
        8 => string(cursor)?.to_owned(),
        9 => array(cursor, depth)?,
        10 => cursor.u64()?.to_string(),
        11 => i64::from_le_bytes(cursor.array()?).to_string(),
        12 => f64::from_le_bytes(cursor.array()?).to_string(),
        other => return Err(Fail::Bad(format!("a note of type {other}, expected 0 to 12"))),
    })
}

/// Skips an array.
fn array(cursor: &mut Cursor<'_>, depth: usize) -> Result<String, Fail> {
    let kind = cursor.u32()?;
    let count = cursor.count()?;
    let size = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        8 => {
            for _ in 0..count {
                string(cursor)?;
            }
            return Ok(format!("[{count} strings]"));
        }
        9 if depth < DEPTH_MAX => {
            for _ in 0..count {
                array(cursor, depth + 1)?;
            }
            return Ok(format!("[{count} arrays]"));
        }
        9 => return Err(Fail::Bad(format!("arrays nest more than {DEPTH_MAX} deep"))),
        other => return Err(Fail::Bad(format!("an array of type {other}, expected 0 to 12"))),
    };
    let len = count.checked_mul(size).ok_or_else(|| format!("an array of {count} values"))?;
    cursor.skip(len)?;
    Ok(format!("[{count} values]"))
}

/// A line of the list of tensors.
struct Info<'a> {
    name: &'a str,
    shape: Vec<usize>,
    kind: u32,
    offset: usize,
}

impl<'a> Info<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Fail> {
        let name = string(cursor)?;
        let rank = cursor.u32()?;
        if usize::try_from(rank).is_ok_and(|rank| rank > RANK_MAX) {
            let message = format!("tensor '{name}' has rank {rank}, expected at most {RANK_MAX}");
            return Err(Fail::Bad(message));
        }
        // The innermost dimension comes first.
        let mut shape = (0..rank).map(|_| cursor.count()).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        Ok(Self { name, shape, kind: cursor.u32()?, offset: cursor.count()? })
    }

    fn entry(&self, start: usize) -> Result<Entry, Fail> {
        let Self { name, shape, kind, offset } = self;
        let fail = |message: &str| Fail::Bad(format!("tensor '{name}': {message}"));
        let elements = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
        let elements = elements.ok_or_else(|| fail("too many elements"))?;
        let (dtype, encoding, len) = if let Some(dtype) = plain(*kind) {
            (dtype, Encoding::Plain, elements.checked_mul(dtype.size()))
        } else if let Some(quant) = QUANTS.iter().find(|quant| quant.kind == *kind) {
            let row = shape.last().copied().unwrap_or(1);
            if !row.is_multiple_of(quant.elements) {
                let (q, n) = (quant.name, quant.elements);
                return Err(fail(&format!("rows of {row} in {q}, expected a multiple of {n}")));
            }
            (DType::F32, Encoding::Quantised(quant), quant.byte_len(elements))
        } else {
            let names: Vec<&str> = QUANTS.iter().map(|quant| quant.name).collect();
            let known = names.join(", ");
            return Err(fail(&format!("type {kind}, expected plain numbers or one of {known}")));
        };
        let from = start.checked_add(*offset).ok_or_else(|| fail("its offset is too large"))?;
        let to = len.and_then(|len| from.checked_add(len));
        let to = to.ok_or_else(|| fail("more bytes than can be addressed"))?;
        Ok(Entry { dtype, shape: shape.clone(), range: from..to, encoding })
    }
}

/// Element types of numbers that are not quantised.
fn plain(kind: u32) -> Option<DType> {
    Some(match kind {
        0 => DType::F32,
        1 => DType::F16,
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        28 => DType::F64,
        30 => DType::BF16,
        _ => return None,
    })
}
