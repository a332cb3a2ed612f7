//! safetensors: a JSON header, then the tensors' bytes.

use super::entry::{Encoding, Entry};
use super::{Contents, Fail, Format};
use lgp_memory::DType;
use safetensors::{Dtype, SafeTensors};

pub(super) const FORMAT: Format = Format { name: "safetensors", detect, read };

/// Bytes of the header's length, with which a file begins.
const PREFIX: usize = 8;

/// Whether the file can begin with the length of a header.
fn detect(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<PREFIX>() else { return false };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    rest.first() == Some(&b'{') && length <= rest.len()
}

fn read(bytes: &[u8]) -> Result<Contents, Fail> {
    let (header, metadata) =
        SafeTensors::read_metadata(bytes).map_err(|e| Fail::Bad(e.to_string()))?;
    let start = header.saturating_add(PREFIX);
    let mut contents = Contents::default();
    for (name, info) in metadata.tensors() {
        let dtype = dtype(info.dtype)
            .ok_or_else(|| format!("tensor '{name}' has dtype {:?}, not supported", info.dtype))?;
        let (from, to) = info.data_offsets;
        let range = start.saturating_add(from)..start.saturating_add(to);
        let shape = info.shape.clone();
        contents.entries.insert(name, Entry { dtype, shape, range, encoding: Encoding::Plain });
    }
    let notes = metadata.metadata().iter().flatten();
    contents.metadata.extend(notes.map(|(key, value)| (key.clone(), value.clone())));
    Ok(contents)
}

/// Our dtype for the format's; `None` for elements that share bytes.
fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::F8_E4M3 => DType::F8E4M3FN,
        Dtype::F8_E8M0 => DType::F8E8M0,
        Dtype::F8_E4M3FNUZ => DType::F8E4M3FNUZ,
        Dtype::F8_E5M2FNUZ => DType::F8E5M2FNUZ,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::C64 => DType::Complex64,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        _ => return None,
    })
}
