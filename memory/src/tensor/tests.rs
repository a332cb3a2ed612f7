//! Tests of tensors and views.

use super::*;
use ndarray::array;

#[test]
fn elements_fill_the_shape_exactly() {
    for (dims, n, ok) in
        [(vec![2, 3], 6, true), (vec![], 1, true), (vec![0, 9], 0, true), (vec![2, 3], 5, false)]
    {
        let made = Tensor::from_slice(dims.clone(), &vec![1i32; n]);
        assert_eq!(made.is_ok(), ok, "{dims:?} {n}");
    }
    let error = Tensor::from_slice([2, 3], &[0f32; 5]).unwrap_err().to_string();
    assert_eq!(error, "20 bytes given, but f32 of shape [2, 3] takes 24");
}

#[test]
fn sizes_that_overflow_are_errors() {
    for dims in [vec![usize::MAX], vec![1 << 40, 1 << 40], vec![isize::MAX.unsigned_abs()]] {
        let made = Tensor::zeros(DType::F32, dims.clone());
        assert!(matches!(made, Err(Error::TooLarge { .. })), "{dims:?}");
    }
}

#[test]
fn reading_as_another_dtype_is_an_error() {
    let t = Tensor::scalar(1f32).unwrap();
    let error = t.as_slice::<i32>().unwrap_err().to_string();
    assert_eq!(error, "dtype is f32, expected i32");
}

#[test]
fn bools_are_zero_or_one() {
    assert_eq!(Tensor::from_bytes(DType::Bool, [2], &[0, 2]), Err(Error::BoolByte));
    let pool = Pool::new();
    Tensor::pooled(&pool, DType::U8, [64]).unwrap().as_bytes_mut().unwrap().fill(9);
    let t = Tensor::pooled(&pool, DType::Bool, [64]).unwrap();
    assert_eq!(pool.stats().hits, 1);
    assert_eq!(t.as_slice::<bool>().unwrap(), [false; 64]);
}

#[test]
fn writing_to_a_clone_leaves_the_original() {
    let a = Tensor::from_slice([2], &[1u8, 2]).unwrap();
    let mut b = a.clone();
    assert_eq!(a.as_bytes().as_ptr(), b.as_bytes().as_ptr());
    b.as_mut_slice::<u8>().unwrap()[0] = 9;
    assert_eq!(a.as_slice::<u8>().unwrap(), [1, 2]);
    assert_eq!(b.as_slice::<u8>().unwrap(), [9, 2]);
}

#[test]
fn reshaping_shares_the_bytes() {
    let a = Tensor::from_slice([2, 3], &[0i64; 6]).unwrap();
    let b = a.reshape([3, 2]).unwrap();
    assert_eq!(a.as_bytes().as_ptr(), b.as_bytes().as_ptr());
    assert!(matches!(a.reshape([4]), Err(Error::Reshape { .. })));
}

#[test]
fn arrays_go_in_and_out() {
    let a = array![[1f32, 2., 3.], [4., 5., 6.]];
    let t = Tensor::from_array(a.t().into_dyn()).unwrap();
    assert_eq!(t.shape().dims(), [3, 2]);
    assert_eq!(t.as_slice::<f32>().unwrap(), [1., 4., 2., 5., 3., 6.]);
    assert_eq!(t.to_array::<f32>().unwrap(), a.t().into_dyn());
    assert!(matches!(TensorView::try_from(a.t().into_dyn()), Err(Error::NotContiguous)));
    let view = TensorView::try_from(a.view().into_dyn()).unwrap();
    assert_eq!(view.shape().dims(), [2, 3]);
}

#[test]
fn views_of_tensors_share_and_others_copy() {
    let t = Tensor::from_slice([2], &[1f32, 2.]).unwrap();
    assert_eq!(t.view().to_tensor().unwrap().as_bytes().as_ptr(), t.as_bytes().as_ptr());
    let data = [1f32, 2.];
    let copied = TensorView::from_slice([2], &data).unwrap().to_tensor().unwrap();
    assert_eq!(copied, t);
}

#[test]
fn bytes_are_viewed_where_they_can_be_elements() {
    let data = [1f32, 2.];
    let bytes: &[u8] = bytemuck::cast_slice(&data);
    let view = TensorView::from_bytes(DType::F32, [2], bytes).unwrap();
    assert_eq!(view.as_slice::<f32>().unwrap().as_ptr(), data.as_ptr());
    let short = TensorView::from_bytes(DType::F32, [3], bytes);
    assert!(matches!(short, Err(Error::ByteLength { .. })), "{short:?}");
    let odd = TensorView::from_bytes(DType::F32, [1], &bytes[1..5]);
    assert!(matches!(odd, Err(Error::Unaligned { .. })), "{odd:?}");
    let strings = TensorView::from_bytes(DType::Str, [1], &bytes[..4]);
    assert!(matches!(strings, Err(Error::Strings)), "{strings:?}");
    assert!(TensorView::from_bytes(DType::F64, [0], &[]).unwrap().is_empty());
}
