//! A healthy processor passes; each kind of corruption is refused by name.

use super::*;
use crate::backend::cpu::CpuDevice;
use crate::pass_on;

/// A processor that gets one operation wrong, as a bad driver would.
#[derive(Debug)]
pub(crate) struct Corrupting {
    inner: CpuDevice,
    op: TestOp,
    corrupt: fn(&mut Vec<u32>),
}

impl Corrupting {
    /// A processor that gets the last element of `op` wrong by one bit.
    pub(crate) fn new(op: TestOp) -> Self {
        let corrupt = |results: &mut Vec<u32>| {
            if let Some(last) = results.last_mut() {
                *last ^= 1 << 20;
            }
        };
        Self { inner: CpuDevice::new(), op, corrupt }
    }
}

impl Device for Corrupting {
    pass_on!(inner: id, name, caps, allocate, queue, pinned, compile, load);

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        let mut outcomes = self.inner.arithmetic(operands)?;
        for (_, results) in outcomes.iter_mut().filter(|(op, _)| *op == self.op) {
            (self.corrupt)(results);
        }
        Ok(outcomes)
    }
}

#[test]
fn a_healthy_processor_passes() {
    let device = CpuDevice::new();
    self_test(&device).expect("the processor calculates");
    let outcomes = device.arithmetic(&Operands::new()).expect("the processor calculates");
    let tested: Vec<TestOp> = outcomes.iter().map(|(op, _)| *op).collect();
    assert_eq!(tested, TestOp::ALL, "every operation is tested");
}

#[test]
fn each_kind_of_corruption_is_refused_by_name() {
    let cases: [fn(&mut Vec<u32>); 4] = [
        |results| results[0] ^= 1 << 20,
        |results| *results.last_mut().expect("has results") = f32::NAN.to_bits(),
        |results| results.iter_mut().for_each(|bits| *bits = 0),
        |results| results.truncate(results.len() - 1),
    ];
    for op in TestOp::ALL {
        for corrupt in cases {
            let device = Corrupting { inner: CpuDevice::new(), op, corrupt };
            match self_test(&device) {
                Err(Error::SelfTest { op: named, detail, .. }) => {
                    assert_eq!(named, op.name(), "{detail}");
                    assert!(detail.contains("expected"), "{detail}");
                }
                other => panic!("{op}: {other:?}"),
            }
        }
    }
}
