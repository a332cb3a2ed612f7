//! Windows in kernels: constants give a window's shape, arguments the sizes of planes.

use super::kernel::{Argument, Kernel, c_type, load, store};
use crate::window::Axis;
use lgp_memory::DType;

impl Kernel {
    /// The kernel with floats of a dtype: `X_TYPE` is their type in memory, `LOAD(p, i)` and
    /// `STORE(value, p, i)` access them. `None` for a dtype that kernels do not calculate in.
    pub(crate) fn floats(self, dtype: DType) -> Option<Self> {
        let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        let kernel = self.define("X_TYPE", c_type(dtype).filter(|_| is_float)?);
        let stored = store(dtype, "(value)", "(p)", "(i)");
        Some(
            kernel
                .define("LOAD(p, i)", load(dtype, "(p)", "(i)"))
                .define("STORE(value, p, i)", stored),
        )
    }

    /// The kernel with elements of any dtype. Floats are as in [`Kernel::floats`]. Integers are
    /// loaded and stored unchanged, and no further steps follow in the kernel. `REGISTER` is the
    /// type of an element in a register.
    pub(crate) fn elements(self, dtype: DType) -> Option<Self> {
        if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return self.define("REGISTER", "float").floats(dtype);
        }
        let name = c_type(dtype)?;
        let kernel = self.define("X_TYPE", name).define("REGISTER", name);
        Some(
            kernel
                .define("LOAD(p, i)", "(p)[i]")
                .define("STORE(value, p, i)", "(p)[i] = (value)")
                .define("EXTRA_PARAMETERS", "")
                .define("Y_TYPE", name)
                .define("FINISH(value, index)", "y[index] = (value)"),
        )
    }

    /// The kernel with a window's `KERNEL_D`, `STRIDE_D`, `DILATION_D` and `PAD_D` (before the
    /// input), and the same for `H` and `W`.
    pub(crate) fn window(self, axes: &[Axis; 3]) -> Self {
        axes.iter().zip(["D", "H", "W"]).fold(self, |kernel, (axis, name)| {
            kernel
                .define(&format!("KERNEL_{name}"), axis.kernel)
                .define(&format!("STRIDE_{name}"), axis.stride)
                .define(&format!("DILATION_{name}"), axis.dilation)
                .define(&format!("PAD_{name}"), axis.begin)
        })
    }
}

/// The input's and then the output's depth, height and width. `None` where a position in a window,
/// padding included, does not fit `i32`.
pub(crate) fn planes(axes: &[Axis; 3]) -> Option<[Argument; 6]> {
    for axis in axes {
        let reach = axis.kernel.checked_mul(axis.dilation)?;
        let last = axis.output.checked_mul(axis.stride)?.checked_add(reach)?;
        i32::try_from(last.max(axis.begin).checked_add(axis.input)?).ok()?;
    }
    let [d, h, w] = axes;
    let sizes = [d.input, h.input, w.input, d.output, h.output, w.output];
    // No size is larger than the sums just checked.
    Some(sizes.map(|size| Argument::U32(u32::try_from(size).unwrap_or(0))))
}
