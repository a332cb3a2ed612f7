//! Tensors for NumPy: its dtype names, and wider dtypes for those that it lacks.

use half::bf16;
use lgp_memory::{
    DType, Element, Error, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, Tensor,
};
use std::borrow::Cow;

/// The dtypes of NumPy and their names.
const NUMPY: [(DType, &str); 14] = [
    (DType::F16, "<f2"),
    (DType::F32, "<f4"),
    (DType::F64, "<f8"),
    (DType::I8, "|i1"),
    (DType::I16, "<i2"),
    (DType::I32, "<i4"),
    (DType::I64, "<i8"),
    (DType::U8, "|u1"),
    (DType::U16, "<u2"),
    (DType::U32, "<u4"),
    (DType::U64, "<u8"),
    (DType::Bool, "|b1"),
    (DType::Complex64, "<c8"),
    (DType::Complex128, "<c16"),
];

/// NumPy's name of a dtype, such as `<f4`; `None` if NumPy lacks it.
#[must_use]
pub fn numpy_name(dtype: DType) -> Option<&'static str> {
    NUMPY.iter().find(|(known, _)| *known == dtype).map(|(_, name)| *name)
}

/// The tensor in a NumPy dtype that holds its values: bf16 and floats of 8 and 4 bits become f32,
/// integers of 4 and 2 bits become 8-bit integers.
///
/// # Errors
/// For strings, and [`Error::OutOfMemory`].
///
/// ```
/// use lgp_common::for_numpy;
/// use lgp_memory::{DType, Tensor};
/// let small = Tensor::from_bytes(DType::I4, [2], &[1, 0xFF])?;
/// assert_eq!(for_numpy(&small)?.as_slice::<i8>()?, [1, -1]);
/// # Ok::<(), lgp_memory::Error>(())
/// ```
pub fn for_numpy(tensor: &Tensor) -> Result<Cow<'_, Tensor>, Error> {
    let wide = match tensor.dtype() {
        DType::BF16 => to_f32(tensor, bf16::to_f32)?,
        DType::F8E4M3FN => to_f32(tensor, F8E4M3FN::to_f32)?,
        DType::F8E4M3FNUZ => to_f32(tensor, F8E4M3FNUZ::to_f32)?,
        DType::F8E5M2 => to_f32(tensor, F8E5M2::to_f32)?,
        DType::F8E5M2FNUZ => to_f32(tensor, F8E5M2FNUZ::to_f32)?,
        DType::F8E8M0 => to_f32(tensor, F8E8M0::to_f32)?,
        DType::F4E2M1 => to_f32(tensor, F4E2M1::to_f32)?,
        // Their bytes hold one value each.
        DType::I4 | DType::I2 => bytes_as(tensor, DType::I8)?,
        DType::U4 | DType::U2 => bytes_as(tensor, DType::U8)?,
        known if numpy_name(known).is_some() => return Ok(Cow::Borrowed(tensor)),
        other => return Err(Error::DType { expected: DType::F32, given: other }),
    };
    Ok(Cow::Owned(wide))
}

fn to_f32<T: Element>(tensor: &Tensor, wide: fn(T) -> f32) -> Result<Tensor, Error> {
    let mut all = Tensor::zeros(DType::F32, tensor.shape().clone())?;
    let given = tensor.as_slice::<T>()?;
    for (to, from) in all.as_mut_slice()?.iter_mut().zip(given) {
        *to = wide(*from);
    }
    Ok(all)
}

fn bytes_as(tensor: &Tensor, dtype: DType) -> Result<Tensor, Error> {
    Tensor::from_bytes(dtype, tensor.shape().clone(), tensor.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_but_strings_has_a_form() {
        for dtype in DType::ALL {
            let tensor = Tensor::zeros(dtype, [2, 3]).expect("small");
            let wide = for_numpy(&tensor).expect("numbers");
            assert!(numpy_name(wide.dtype()).is_some(), "{dtype}");
            assert_eq!(wide.shape(), tensor.shape(), "{dtype}");
        }
        for_numpy(&Tensor::zeros(DType::Str, [1]).expect("small")).expect_err("texts");
        let halves = [bf16::from_f32(-1.5), bf16::INFINITY];
        let tensor = Tensor::from_slice([2], &halves).expect("small");
        let wide = for_numpy(&tensor).expect("numbers");
        assert_eq!(wide.as_slice::<f32>().expect("f32"), [-1.5, f32::INFINITY]);
    }
}
