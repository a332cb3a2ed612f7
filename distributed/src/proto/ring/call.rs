//! The header of each frame between neighbours: the call of which it is a part. Ranks that do not
//! make the same call notice it by the first frame.
//!
//! A frame is `u32 length | u8 operation | u8 dtype | u8 reduction | u8 0 | u32 root | u64 number of
//! the call | u64 elements`, little-endian, then elements; `length` counts what follows it.

use crate::proto::tensors::{code_of, dtype_of};
use lgp_memory::{DType, Reduction};
use std::fmt;

/// Bytes of the header, with the length in front.
pub(crate) const HEADER_BYTES: usize = 28;

/// What the ranks do together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Barrier,
    Broadcast,
    AllReduce,
    ReduceScatter,
    AllGather,
}

const OPERATIONS: [(u8, Operation, &str); 5] = [
    (1, Operation::Barrier, "barrier"),
    (2, Operation::Broadcast, "broadcast"),
    (3, Operation::AllReduce, "all_reduce"),
    (4, Operation::ReduceScatter, "reduce_scatter"),
    (5, Operation::AllGather, "all_gather"),
];

const REDUCTIONS: [(u8, Reduction, &str); 4] = [
    (1, Reduction::Sum, "sum"),
    (2, Reduction::Max, "max"),
    (3, Reduction::Min, "min"),
    (4, Reduction::Mean, "mean"),
];

/// One collective, as every rank must call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Counts the calls of a ring.
    pub(crate) number: u64,
    pub(crate) operation: Operation,
    pub(crate) dtype: DType,
    /// Elements that each rank gives.
    pub(crate) count: u64,
    pub(crate) how: Option<Reduction>,
    pub(crate) root: Option<u32>,
}

impl Call {
    /// The header of a frame with a body of so many bytes.
    pub(crate) fn header(&self, body: usize) -> [u8; HEADER_BYTES] {
        // Chunks are bounded far below 32 bits.
        let length = u32::try_from(HEADER_BYTES - 4 + body).unwrap_or(u32::MAX);
        let operation = OPERATIONS.iter().find(|(_, o, _)| *o == self.operation);
        let how = REDUCTIONS.iter().find(|(_, how, _)| Some(*how) == self.how);
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4] = operation.map_or(0, |(code, ..)| *code);
        header[5] = code_of(self.dtype);
        header[6] = how.map_or(0, |(code, ..)| *code);
        header[8..12].copy_from_slice(&self.root.unwrap_or(u32::MAX).to_le_bytes());
        header[12..20].copy_from_slice(&self.number.to_le_bytes());
        header[20..].copy_from_slice(&self.count.to_le_bytes());
        header
    }

    /// Whether a frame that came belongs to this call and has a body of `body` bytes; otherwise a
    /// description of the frame.
    pub(crate) fn check(&self, given: &[u8; HEADER_BYTES], body: usize) -> Result<(), String> {
        let own = self.header(body);
        if given[4..] != own[4..] {
            return Err(describe(given));
        }
        if given[..4] != own[..4] {
            let [a, b, c, d, ..] = *given;
            let length = u32::from_le_bytes([a, b, c, d]);
            return Err(format!("a frame of {length} bytes"));
        }
        Ok(())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe(&self.header(0)))
    }
}

/// A header in words, whatever its bytes are.
fn describe(header: &[u8; HEADER_BYTES]) -> String {
    let [_, _, _, _, operation, dtype, how, _, r0, r1, r2, r3, rest @ ..] = *header;
    let (number, count) = rest.split_at(8);
    let wide = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let (number, count, root) = (wide(number), wide(count), u32::from_le_bytes([r0, r1, r2, r3]));
    let name = OPERATIONS.iter().find(|(code, ..)| *code == operation).map(|(.., name)| *name);
    let name = name.map_or_else(|| format!("operation {operation}"), ToOwned::to_owned);
    let how = REDUCTIONS.iter().find(|(code, ..)| *code == how);
    let how = how.map_or_else(String::new, |(.., how)| format!(" ({how})"));
    let dtype = dtype_of(dtype).map_or("elements of no type", DType::name);
    let from = if root == u32::MAX { String::new() } else { format!(" from rank {root}") };
    format!("{name}{how}{from} of {count} {dtype} as call {number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call {
        number: 3,
        operation: Operation::AllReduce,
        dtype: DType::F32,
        count: 7,
        how: Some(Reduction::Sum),
        root: None,
    };

    #[test]
    fn only_the_same_call_is_accepted() {
        assert_eq!(CALL.check(&CALL.header(8), 8), Ok(()));
        let cases = [
            (Call { number: 4, ..CALL }, "all_reduce (sum) of 7 f32 as call 4"),
            (Call { dtype: DType::I32, ..CALL }, "all_reduce (sum) of 7 i32 as call 3"),
            (Call { count: 8, ..CALL }, "all_reduce (sum) of 8 f32 as call 3"),
            (Call { how: Some(Reduction::Max), ..CALL }, "all_reduce (max) of 7 f32 as call 3"),
            (
                Call { operation: Operation::Broadcast, how: None, root: Some(1), ..CALL },
                "broadcast from rank 1 of 7 f32 as call 3",
            ),
            (
                Call { operation: Operation::Barrier, how: None, count: 0, ..CALL },
                "barrier of 0 f32 as call 3",
            ),
        ];
        for (other, expected) in cases {
            assert_eq!(CALL.check(&other.header(8), 8), Err(expected.to_owned()));
            assert_eq!(other.to_string(), expected);
        }
        assert_eq!(CALL.check(&CALL.header(4), 8), Err("a frame of 28 bytes".to_owned()));
        // Noise is described, not believed.
        let noise = CALL.check(&[200; HEADER_BYTES], 8).expect_err("noise");
        assert!(noise.starts_with("operation 200 from rank 3368601800"), "{noise}");
    }
}
