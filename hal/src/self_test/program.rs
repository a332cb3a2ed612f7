//! The self-test's operations as kernels, for devices that compile OpenCL C 1.2.

use super::{GROUP, Operands, Outcomes, TestOp};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::Result;
use crate::program::{Arg, Launch};
use crate::queue::Queue;
use std::sync::Arc;

/// The self-test as a program, for devices that compile OpenCL C 1.2.
const SOURCE: &str = include_str!("self_test.cl");

/// Calculates every operation with the device's own compiler and cores: the body of
/// [`Device::arithmetic`] for devices that compile OpenCL C 1.2.
///
/// # Errors
/// When the device refuses a step.
pub fn arithmetic_by_program(device: &dyn Device, operands: &Operands) -> Result<Outcomes> {
    let program = device.compile(SOURCE, "")?;
    let mut queue = device.queue()?;
    let length = operands.a.len();
    let upload = |queue: &mut dyn Queue, bytes: &[u8]| -> Result<_> {
        let buffer = device.allocate(bytes.len())?;
        queue.write(&*buffer, 0, bytes)?;
        Ok(buffer)
    };
    let floats = [&operands.a, &operands.b, &operands.c, &operands.n];
    let mut inputs = Vec::new();
    for bytes in floats.map(|values| bytemuck::cast_slice::<f32, u8>(values)) {
        inputs.push(upload(&mut *queue, bytes)?);
    }
    for bytes in [&operands.x, &operands.y].map(|values| bytemuck::cast_slice::<u32, u8>(values)) {
        inputs.push(upload(&mut *queue, bytes)?);
    }
    let mut outcomes = Vec::new();
    for op in TestOp::ALL {
        // Indices into a, b, c, n, x, y.
        let (kernel, used, results): (_, &[usize], _) = match op {
            TestOp::Fma => ("test_fma", &[0, 1, 2], length),
            TestOp::Exp => ("test_exp", &[0], length),
            TestOp::DivideSqrt => ("test_divide_sqrt", &[1, 2], length),
            TestOp::Integer => ("test_integer", &[4, 5], length),
            TestOp::GroupSum => ("test_group_sum", &[3], length / GROUP),
        };
        let out: Arc<dyn Buffer> = device.allocate(4 * results)?;
        let mut args: Vec<Arg<'_>> = used.iter().map(|&at| Arg::Buffer(&*inputs[at])).collect();
        args.push(Arg::Buffer(&*out));
        let launch = Launch {
            program: &*program,
            kernel,
            global: [length, 1, 1],
            local: Some([GROUP, 1, 1]),
            args: &args,
        };
        // SAFETY: each kernel of SOURCE reads and writes one element of each buffer per work-item,
        // and the buffers have one element per work-item. The group sum writes one element per
        // group, and `out` has as many. The arguments are in the kernels' order.
        unsafe { queue.launch(&launch)? };
        let mut bits = vec![0u32; results];
        queue.read(&*out, 0, bytemuck::cast_slice_mut(&mut bits))?;
        outcomes.push((op, bits));
    }
    Ok(outcomes)
}
