//! Lists whose length comes from an input's value. A list without room in memory is an error, where
//! `collect` would end the process.

use crate::error::Result;
use lgp_memory::Error;

/// The items as a list.
pub(crate) fn list<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut out = Vec::new();
    let bytes = items.len().saturating_mul(size_of::<T>());
    out.try_reserve_exact(items.len()).map_err(|_| Error::OutOfMemory { bytes })?;
    out.extend(items);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn what_has_no_room_is_an_error() {
        assert_eq!(list([1, 2].into_iter()).unwrap(), [1, 2]);
        let message = list(std::iter::repeat_n(1u64, 1 << 60)).unwrap_err().to_string();
        assert_eq!(message, "cannot allocate 9223372036854775808 bytes of host memory");
    }
}
