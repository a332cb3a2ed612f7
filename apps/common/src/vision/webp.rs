//! Compares the sizes that a WebP file states in several places before anything is decoded: the decoder allocates
//! memory for each.
//! Format: RFC 9649.

/// Bytes before the first chunk.
const HEAD: usize = 12;

type Size = (u32, u32);

/// A chunk's name and contents, and the bytes after it.
type Chunk<'a> = (&'a [u8; 4], &'a [u8], &'a [u8]);

/// Refuses a file with a chunk longer than the file, or with an image whose size differs from the one stated
/// outside it.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let mut rest = bytes.get(HEAD..).unwrap_or_default();
    let mut canvas = None;
    while let Some((name, body, next)) = chunk(rest)? {
        match name {
            b"VP8X" => canvas = Some((int24(body, 4)? + 1, int24(body, 7)? + 1)),
            b"ANMF" => {
                let frame = (int24(body, 6)? + 1, int24(body, 9)? + 1);
                let mut rest = body.get(16..).unwrap_or_default();
                while let Some((name, body, next)) = chunk(rest)? {
                    compare(name, body, Some(frame))?;
                    rest = next;
                }
            }
            _ => compare(name, body, canvas)?,
        }
        rest = next;
    }
    Ok(())
}

/// The first chunk; `None` at the end.
fn chunk(bytes: &[u8]) -> Result<Option<Chunk<'_>>, String> {
    let Some((name, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let Some(body) = rest.get(..length) else {
        let (name, left) = (name.escape_ascii(), rest.len());
        return Err(format!("its chunk {name} says {length} bytes, of which there are {left}"));
    };
    // Chunks are padded to even lengths.
    Ok(Some((name, body, rest.get(length + length % 2..).unwrap_or_default())))
}

/// Checks that a lossy image has the stated size; the decoder checks other formats.
fn compare(name: &[u8; 4], body: &[u8], said: Option<Size>) -> Result<(), String> {
    let (b"VP8 ", Some(said)) = (name, said) else { return Ok(()) };
    let side = |at: usize| {
        let bytes = body.get(at..).and_then(|body| body.first_chunk::<2>());
        let bytes = bytes.ok_or_else(|| "its picture is cut short".to_owned())?;
        Ok::<_, String>(u32::from(u16::from_le_bytes(*bytes) & 0x3fff))
    };
    let ((width, height), size) = (said, (side(6)?, side(8)?));
    if size == said {
        return Ok(());
    }
    Err(format!("its picture has {}x{} pixels, expected {width}x{height}", size.0, size.1))
}

fn int24(bytes: &[u8], at: usize) -> Result<u32, String> {
    let three = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<3>());
    let [a, b, c] = three.ok_or_else(|| "its header is cut short".to_owned())?;
    Ok(u32::from_le_bytes([*a, *b, *c, 0]))
}
