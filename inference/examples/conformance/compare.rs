//! Holds an output against what is expected, by the suite's own rule: equal dtype and shape, and
//! elements that differ by at most `absolute + relative · |expected|`.

use lgp_compute::ops::Cast;
use lgp_compute::{Context, Op};
use lgp_memory::{DType, Tensor};
use std::path::Path;

/// How far elements may lie apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    relative: f64,
    absolute: f64,
}

impl Tolerance {
    /// What holds where a test says nothing else.
    pub(crate) const DEFAULT: Self = Self { relative: 1e-3, absolute: 1e-7 };

    /// A test's own tolerance, which lies beside its model.
    pub(crate) fn read(path: &Path) -> Self {
        let value = std::fs::read(path).ok();
        let value = value.and_then(|b| serde_json::from_slice::<serde_json::Value>(&b).ok());
        let number = |key: &str| value.as_ref()?.get(key)?.as_f64();
        Self {
            relative: number("rtol").unwrap_or(Self::DEFAULT.relative),
            absolute: number("atol").unwrap_or(Self::DEFAULT.absolute),
        }
    }
}

/// The first difference, in words.
pub(crate) fn compare(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    if got.dtype() != want.dtype() {
        return Err(format!("dtype {}, expected {}", got.dtype(), want.dtype()));
    }
    if got.shape() != want.shape() {
        return Err(format!("shape {:?}, expected {:?}", got.shape().dims(), want.shape().dims()));
    }
    if got == want {
        return Ok(());
    }
    if let (Ok(got), Ok(want)) = (got.strings(), want.strings()) {
        let differ = got.iter().zip(&want).find(|(a, b)| a != b);
        return Err(differ.map_or_else(String::new, |(a, b)| format!("'{a}', expected '{b}'")));
    }
    let (a, b) = (wide(got)?, wide(want)?);
    let off = |a: f64, b: f64| {
        let equal = a == b || (a.is_nan() && b.is_nan());
        let near = (a - b).abs() <= tolerance.absolute + tolerance.relative * b.abs();
        !equal && !near
    };
    let wrong: Vec<usize> = (0..a.len()).filter(|&i| off(a[i], b[i])).collect();
    match wrong.first() {
        None => Ok(()),
        Some(&i) => {
            let (count, all) = (wrong.len(), a.len());
            Err(format!(
                "{count} of {all} elements differ, element {i} is {}, expected {}",
                a[i], b[i]
            ))
        }
    }
}

fn wide(x: &Tensor) -> Result<Vec<f64>, String> {
    let cast = Cast { to: DType::F64 };
    let out = cast.run(&Context::new(1), &[Some(x.view())]).map_err(|e| e.to_string())?;
    let out = out.first().ok_or("nothing came of a cast")?;
    Ok(out.as_slice::<f64>().map_err(|e| e.to_string())?.to_vec())
}
