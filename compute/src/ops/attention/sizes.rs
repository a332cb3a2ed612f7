//! The sizes of an attention on the CPU.

use super::Attention;
use crate::args::infos;
use crate::error::{Error, Result};
use lgp_memory::{Dim, TensorView};

/// The sizes of an attention, all of them known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) key_heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) past: usize,
    pub(super) size: usize,
    pub(super) value_size: usize,
}

impl Sizes {
    /// The sizes that these inputs give.
    ///
    /// # Errors
    /// A shape that is unknown, and inputs that do not fit each other.
    pub(super) fn of(op: &Attention, inputs: &[Option<TensorView<'_>>]) -> Result<Self> {
        let infos = infos(inputs)?;
        let infos: Vec<_> = infos.iter().map(Option::as_ref).collect();
        let forms = op.forms(&infos)?;
        let Some(forms) = forms else { return Err(Error::invalid("a shape is not known")) };
        let known = |d: &Dim| d.known().unwrap_or(0);
        let keys = known(&op.keys(&infos, &forms)?);
        let [q, k, v] = &forms;
        Ok(Self {
            batch: known(&q.batch),
            heads: known(&q.heads),
            key_heads: known(&k.heads),
            queries: known(&q.length),
            keys,
            past: keys - known(&k.length),
            size: known(&q.size),
            value_size: known(&v.size),
        })
    }
}
