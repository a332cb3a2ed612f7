//! Positions of elements in a list.

#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{concrete_one, output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::Cast;
use lgp_memory::{DType, Tensor, TensorView};
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;

/// The position of each element in a list as i64, or the list's length for an element that is not
/// in it.
/// NaN equals NaN, and -0 equals 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexOf {
    dtype: DType,
    keys: Keys,
    count: i64,
    strict: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Keys {
    Texts(HashMap<Box<str>, i64>),
    Ints(HashMap<i64, i64>),
    /// By the bits of an f64.
    Floats(HashMap<u64, i64>),
}

impl IndexOf {
    /// The list: strings or real numbers, of the dtype that the input will have. The first of
    /// equal ones counts.
    ///
    /// # Errors
    /// A list of another dtype.
    pub fn new(list: &Tensor) -> Result<Self> {
        let dtype = list.dtype();
        let ctx = Context::new(1);
        let keys = if dtype == DType::Str {
            Keys::Texts(firsts(list.strings()?.into_iter().map(Box::from)))
        } else if dtype.is_float() {
            let list = cast(&ctx, &list.view(), DType::F64)?;
            Keys::Floats(firsts(list.as_slice::<f64>()?.iter().map(|&x| bits(x))))
        } else {
            let list = cast(&ctx, &list.view(), DType::I64)?;
            Keys::Ints(firsts(list.as_slice::<i64>()?.iter().copied()))
        };
        let count = i64::try_from(list.len()).unwrap_or(i64::MAX);
        Ok(Self { dtype, keys, count, strict: false })
    }

    /// The same, but an element that is not in the list is an error.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }
}

impl Op for IndexOf {
    fn name(&self) -> &'static str {
        "IndexOf"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        crate::args::same_dtype("the input", self.dtype, x.ty.dtype)?;
        Ok(output(DType::I64, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (_, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let mut out = ctx.alloc(DType::I64, shape)?;
        let places = out.as_mut_slice::<i64>()?;
        let missing = match &self.keys {
            Keys::Texts(keys) => self.place(x.strings()?.iter().map(|t| keys.get(*t)), places),
            Keys::Ints(keys) => {
                let x = cast(ctx, x, DType::I64)?;
                self.place(x.as_slice::<i64>()?.iter().map(|n| keys.get(n)), places)
            }
            Keys::Floats(keys) => {
                let x = cast(ctx, x, DType::F64)?;
                self.place(x.as_slice::<f64>()?.iter().map(|&n| keys.get(&bits(n))), places)
            }
        };
        match missing.filter(|_| self.strict) {
            Some(at) => {
                let message = format!("element {at} is none of the {} expected ones", self.count);
                Err(Error::invalid(message))
            }
            None => Ok(vec![out]),
        }
    }
}

impl IndexOf {
    /// Writes the positions; returns the first element that has none.
    fn place<'a>(
        &self,
        found: impl Iterator<Item = Option<&'a i64>>,
        out: &mut [i64],
    ) -> Option<usize> {
        let mut missing = None;
        for (i, (out, found)) in out.iter_mut().zip(found).enumerate() {
            if found.is_none() {
                missing = missing.or(Some(i));
            }
            *out = found.copied().unwrap_or(self.count);
        }
        missing
    }
}

fn firsts<K: Hash + Eq>(keys: impl Iterator<Item = K>) -> HashMap<K, i64> {
    let mut map = HashMap::new();
    for (key, i) in keys.zip(0..) {
        map.entry(key).or_insert(i);
    }
    map
}

fn cast(ctx: &Context, x: &TensorView<'_>, to: DType) -> Result<Tensor> {
    let mut out = Cast { to }.run(ctx, &[Some(x.clone())])?;
    out.pop().ok_or_else(|| Error::invalid("there is no output"))
}

/// The bits of a number; 0 and -0 have the same, and so have all NaN.
fn bits(x: f64) -> u64 {
    if x == 0. {
        0
    } else if x.is_nan() {
        f64::NAN.to_bits()
    } else {
        x.to_bits()
    }
}
