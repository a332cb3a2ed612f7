//! The numeric self-test of every opened device: old cards with bad drivers return NaN or garbage,
//! so a device is used only after it has computed known results.

mod operands;
mod program;

pub use operands::{Operands, Outcomes, TestOp};
pub use program::arithmetic_by_program;

use crate::device::Device;
use crate::error::{Error, Result};

/// Elements of one local-memory sum; every device has work-groups of at least this size.
pub(crate) const GROUP: usize = 64;

impl Operands {
    /// The right results: exact ones by their bits, the others as f64.
    fn expected(&self, op: TestOp) -> Expected {
        let wide = |value: f32| f64::from(value);
        match op {
            TestOp::Fma => {
                let triples = self.a.iter().zip(&self.b).zip(&self.c);
                Expected::Float(triples.map(|((&a, &b), &c)| a.mul_add(b, c)).collect())
            }
            TestOp::Exp => Expected::Near(self.a.iter().map(|&a| wide(a).exp()).collect()),
            TestOp::DivideSqrt => {
                let pairs = self.b.iter().zip(&self.c);
                let value = |(&b, &c): (&f32, &f32)| wide(b).sqrt() / (1.0 + wide(c) * wide(c));
                Expected::Near(pairs.map(value).collect())
            }
            TestOp::Integer => {
                let pairs = self.x.iter().zip(&self.y);
                let value = |(&x, &y): (&u32, &u32)| x.wrapping_mul(y).wrapping_add((x >> 7) ^ y);
                Expected::Integer(pairs.map(value).collect())
            }
            TestOp::GroupSum => {
                Expected::Float(self.n.chunks(GROUP).map(|group| group.iter().sum()).collect())
            }
        }
    }
}

/// The right results, and the tolerance.
enum Expected {
    Integer(Vec<u32>),
    Float(Vec<f32>),
    Near(Vec<f64>),
}

impl Expected {
    fn len(&self) -> usize {
        match self {
            Self::Integer(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Near(values) => values.len(),
        }
    }

    /// The problem with element `index`, if there is one.
    fn complaint(&self, index: usize, bits: u32) -> Option<String> {
        let float = f32::from_bits(bits);
        let (wrong, given, expected) = match self {
            Self::Integer(values) => {
                (bits != values[index], bits.to_string(), values[index].to_string())
            }
            // Comparing values and not bits lets a device answer −0 for 0.
            Self::Float(values) => {
                (float != values[index], float.to_string(), values[index].to_string())
            }
            Self::Near(values) => {
                let error = (f64::from(float) - values[index]).abs();
                let near = error <= 1e-6 * values[index].abs();
                (!near, float.to_string(), values[index].to_string())
            }
        };
        wrong.then(|| format!("element {index} is {given}, expected {expected}"))
    }
}

/// Tests transfers, and the arithmetic if the device has any.
///
/// # Errors
/// [`Error::SelfTest`] with the name of the operation that failed.
pub fn self_test(device: &dyn Device) -> Result<()> {
    transfers(device)?;
    let operands = Operands::new();
    let fail =
        |op: &'static str, detail: String| Err(Error::SelfTest { device: device.id(), op, detail });
    let outcomes = match device.arithmetic(&operands) {
        Ok(outcomes) => outcomes,
        Err(error @ Error::SelfTest { .. }) => return Err(error),
        Err(error) => return fail("arithmetic", error.to_string()),
    };
    for (op, results) in outcomes {
        let expected = operands.expected(op);
        if results.len() != expected.len() {
            let detail = format!("{} results, expected {}", results.len(), expected.len());
            return fail(op.name(), detail);
        }
        let mut all = results.iter().enumerate();
        if let Some(detail) = all.find_map(|(index, &bits)| expected.complaint(index, bits)) {
            return fail(op.name(), detail);
        }
    }
    Ok(())
}

/// Writes a pattern, copies it on the device and reads both places back.
fn transfers(device: &dyn Device) -> Result<()> {
    let fail = |detail: String| Error::SelfTest { device: device.id(), op: "transfers", detail };
    let words = Operands::new().x;
    let pattern: &[u8] = bytemuck::cast_slice(&words);
    let mut back = vec![0u8; 2 * pattern.len()];
    let mut run = || -> Result<()> {
        let buffer = device.allocate(2 * pattern.len())?;
        let mut queue = device.queue()?;
        queue.write(&*buffer, 0, pattern)?;
        queue.copy(&*buffer, 0, &*buffer, pattern.len(), pattern.len())?;
        queue.read(&*buffer, 0, &mut back)
    };
    run().map_err(|error| fail(error.to_string()))?;
    let expected = pattern.iter().chain(pattern);
    match back.iter().zip(expected).position(|(given, expected)| given != expected) {
        None => Ok(()),
        Some(at) => Err(fail(format!(
            "byte {at} is {}, expected {}",
            back[at],
            pattern[at % pattern.len()]
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests;
