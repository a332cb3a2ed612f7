//! Strided views of a contiguous tensor's elements, and copying them into row-major order.

use crate::error::{Error, Result};
use crate::shape::Shape;

/// Where the elements of a view lie: element `[i, j, …]` is at
/// `offset + i · strides[0] + j · strides[1] + …`, counted in elements.
///
/// ```
/// use lgp_memory::{Layout, Shape};
/// let transposed = Layout::contiguous(&Shape::from([2, 3]))?.permuted(&[1, 0])?;
/// let mut out = [0u8; 6];
/// transposed.copy(1, &[0, 1, 2, 3, 4, 5], &mut out)?;
/// assert_eq!(out, [0, 3, 1, 4, 2, 5]);
/// # Ok::<(), lgp_memory::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    dims: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
}

impl Layout {
    /// The layout of a row-major tensor.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the elements cannot be addressed.
    pub fn contiguous(shape: &Shape) -> Result<Self> {
        let too_large = || Error::TooLarge { shape: shape.to_vec() };
        let mut strides = vec![0isize; shape.rank()];
        if shape.elements()? > 0 {
            let mut step = 1isize;
            for (stride, &dim) in strides.iter_mut().zip(shape.iter()).rev() {
                *stride = step;
                let dim = isize::try_from(dim).map_err(|_| too_large())?;
                step = step.checked_mul(dim).ok_or_else(too_large)?;
            }
        }
        Ok(Self { dims: shape.to_vec(), strides, offset: 0 })
    }

    /// The view's dimensions.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Elements between neighbours along each axis; 0 along a broadcast one.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Position of the first element.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the elements follow each other in row-major order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let axes = self.coalesced();
        axes.is_empty() || axes.len() == 1 && axes[0].stride == 1
    }

    /// The view whose axis `i` is this one's axis `perm[i]`.
    ///
    /// # Errors
    /// [`Error::Permutation`] unless `perm` names every axis once.
    pub fn permuted(&self, perm: &[usize]) -> Result<Self> {
        let rank = self.dims.len();
        let wrong = || Error::Permutation { perm: perm.to_vec(), rank };
        let mut seen = vec![false; rank];
        for &axis in perm {
            let seen = seen.get_mut(axis).ok_or_else(wrong)?;
            if std::mem::replace(seen, true) {
                return Err(wrong());
            }
        }
        if perm.len() != rank {
            return Err(wrong());
        }
        Ok(Self {
            dims: perm.iter().map(|&axis| self.dims[axis]).collect(),
            strides: perm.iter().map(|&axis| self.strides[axis]).collect(),
            offset: self.offset,
        })
    }

    /// The view repeated to a larger shape, by numpy's rules.
    ///
    /// # Errors
    /// [`Error::Broadcast`] when a dimension is neither 1 nor the wanted one.
    pub fn broadcast(&self, shape: &Shape) -> Result<Self> {
        let wrong = || Error::Broadcast { from: self.dims.clone(), to: shape.to_vec() };
        let new = shape.rank().checked_sub(self.dims.len()).ok_or_else(wrong)?;
        let mut strides = vec![0; shape.rank()];
        for (axis, (&dim, &stride)) in self.dims.iter().zip(&self.strides).enumerate() {
            if dim == shape[new + axis] {
                strides[new + axis] = stride;
            } else if dim != 1 {
                return Err(wrong());
            }
        }
        Ok(Self { dims: shape.to_vec(), strides, offset: self.offset })
    }

    /// The view of `len` elements of an axis, `step` apart from `start` on; `step` may be
    /// negative.
    ///
    /// # Errors
    /// [`Error::Slice`] when an element would lie outside the axis or there is no such axis.
    pub fn sliced(&self, axis: usize, start: usize, step: isize, len: usize) -> Result<Self> {
        let dim = self.dims.get(axis).copied().unwrap_or(0);
        let wrong = || Error::Slice { axis, dim, start, step, len };
        let mut view = self.clone();
        *view.dims.get_mut(axis).ok_or_else(wrong)? = len;
        let Some(steps) = len.checked_sub(1) else { return Ok(view) };
        let last = isize::try_from(steps)
            .ok()
            .and_then(|n| n.checked_mul(step))
            .and_then(|n| start.checked_add_signed(n))
            .ok_or_else(wrong)?;
        if start >= dim || last >= dim {
            return Err(wrong());
        }
        let start = isize::try_from(start).map_err(|_| wrong())?;
        view.offset = start
            .checked_mul(self.strides[axis])
            .and_then(|n| self.offset.checked_add_signed(n))
            .ok_or_else(wrong)?;
        // With one element the stride is unused, so it may have any value.
        view.strides[axis] = if len == 1 { 0 } else { self.strides[axis] * step };
        Ok(view)
    }

    /// Copies the view's elements, each `size` bytes, from `src` into row-major order in `dst`.
    ///
    /// # Errors
    /// [`Error::CopyLength`] unless `dst` has exactly the view's bytes and `src` contains all
    /// elements of the view.
    pub fn copy(&self, size: usize, src: &[u8], dst: &mut [u8]) -> Result<()> {
        let wrong = || Error::CopyLength { source_bytes: src.len(), target_bytes: dst.len() };
        let bytes = Shape::from(self.dims.as_slice()).elements()?.checked_mul(size);
        if bytes != Some(dst.len()) || size == 0 {
            return Err(wrong());
        }
        if dst.is_empty() {
            return Ok(());
        }
        if self.reach().and_then(|n| n.checked_mul(size)).is_none_or(|n| n > src.len()) {
            return Err(wrong());
        }
        let axes = self.coalesced();
        match size {
            1 => copy::<1>(&axes, self.offset, src, dst),
            2 => copy::<2>(&axes, self.offset, src, dst),
            4 => copy::<4>(&axes, self.offset, src, dst),
            8 => copy::<8>(&axes, self.offset, src, dst),
            16 => copy::<16>(&axes, self.offset, src, dst),
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// The length of the source up to the last element that a view without empty axes reads; `None`
    /// if an element would lie before the first.
    fn reach(&self) -> Option<usize> {
        let (mut low, mut high) = (self.offset, self.offset);
        for (&dim, &stride) in self.dims.iter().zip(&self.strides) {
            let span = isize::try_from(dim - 1).ok()?.checked_mul(stride)?;
            if span < 0 {
                low = low.checked_add_signed(span)?;
            } else {
                high = high.checked_add_signed(span)?;
            }
        }
        high.checked_add(1)
    }

    /// The axes without those of size 1; neighbouring axes that share one stride are merged.
    fn coalesced(&self) -> Vec<Axis> {
        let mut axes: Vec<Axis> = Vec::with_capacity(self.dims.len());
        for (&dim, &stride) in self.dims.iter().zip(&self.strides) {
            if dim == 1 {
                continue;
            }
            match axes.last_mut() {
                Some(outer)
                    if isize::try_from(dim).ok().and_then(|n| n.checked_mul(stride))
                        == Some(outer.stride) =>
                {
                    *outer = Axis { dim: outer.dim.saturating_mul(dim), stride };
                }
                _ => axes.push(Axis { dim, stride }),
            }
        }
        axes
    }
}

/// One axis of a view.
#[derive(Debug, Clone, Copy)]
struct Axis {
    dim: usize,
    stride: isize,
}

/// Side of the square blocks in which a transposition runs, so that both sides stay in cache.
const TILE: usize = 16;

/// Copies elements of `N` bytes. The caller has checked that all elements lie within `src`, and
/// that `dst` has as many as the axes.
fn copy<const N: usize>(axes: &[Axis], offset: usize, src: &[u8], dst: &mut [u8]) {
    let src = src.as_chunks::<N>().0;
    let dst = dst.as_chunks_mut::<N>().0;
    let Some((&inner, outer)) = axes.split_last() else {
        dst[0] = src[offset];
        return;
    };
    if let Some((&rows, outer)) = outer.split_last()
        && rows.stride == 1
        && inner.stride > 1
    {
        let step = inner.stride.unsigned_abs();
        let mut planes = dst.chunks_exact_mut(rows.dim * inner.dim);
        walk(outer, offset, &mut |at| {
            if let Some(plane) = planes.next() {
                transpose(rows.dim, inner.dim, step, &src[at..], plane);
            }
        });
        return;
    }
    let mut runs = dst.chunks_exact_mut(inner.dim);
    walk(outer, offset, &mut |at| {
        let Some(run) = runs.next() else { return };
        match inner.stride {
            1 => run.copy_from_slice(&src[at..at + inner.dim]),
            0 => run.fill(src[at]),
            step if step > 0 => {
                let from = src[at..].iter().step_by(step.unsigned_abs());
                run.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
            step => {
                let from = src[..=at].iter().rev().step_by(step.unsigned_abs());
                run.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    });
}

/// Writes a plane whose rows are neighbours in `src` and whose columns are `step` apart.
fn transpose<T: Copy>(rows: usize, columns: usize, step: usize, src: &[T], plane: &mut [T]) {
    match columns {
        2 => return interleave::<T, 2>(rows, step, src, plane),
        3 => return interleave::<T, 3>(rows, step, src, plane),
        4 => return interleave::<T, 4>(rows, step, src, plane),
        _ => {}
    }
    for r0 in (0..rows).step_by(TILE) {
        for c0 in (0..columns).step_by(TILE) {
            let c1 = (c0 + TILE).min(columns);
            for r in r0..(r0 + TILE).min(rows) {
                let to = &mut plane[r * columns + c0..r * columns + c1];
                let from = src[c0 * step + r..].iter().step_by(step);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

/// [`transpose`] for the few channels of an image.
fn interleave<T: Copy, const C: usize>(rows: usize, step: usize, src: &[T], plane: &mut [T]) {
    let columns: [&[T]; C] = std::array::from_fn(|c| &src[c * step..][..rows]);
    for (r, to) in plane.as_chunks_mut::<C>().0.iter_mut().enumerate() {
        *to = std::array::from_fn(|c| columns[c][r]);
    }
}

/// Calls `visit` with the position of the first element of every innermost run, in row-major
/// order of the outer axes.
fn walk(outer: &[Axis], offset: usize, visit: &mut impl FnMut(usize)) {
    match outer.split_first() {
        None => visit(offset),
        Some((axis, inner)) => {
            let mut at = offset;
            for i in 0..axis.dim {
                walk(inner, at, visit);
                if i + 1 < axis.dim {
                    // Every visited position was checked by `reach`; none wraps.
                    at = at.wrapping_add_signed(axis.stride);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn iota(n: usize) -> Vec<u8> {
        (0..n).flat_map(|i| u16::try_from(i).unwrap().to_ne_bytes()).collect()
    }

    /// The view's elements, one by one.
    fn naive(view: &Layout) -> Vec<usize> {
        let mut out = Vec::new();
        let n: usize = view.dims().iter().product();
        for i in 0..n {
            let (mut rest, mut at) = (i, isize::try_from(view.offset()).unwrap());
            for (&dim, &stride) in view.dims().iter().zip(view.strides()).rev() {
                at += isize::try_from(rest % dim).unwrap() * stride;
                rest /= dim;
            }
            out.push(usize::try_from(at).unwrap());
        }
        out
    }

    fn check(view: &Layout, elements: usize) {
        let expected: Vec<usize> = naive(view);
        let mut out = vec![0; expected.len() * 2];
        view.copy(2, &iota(elements), &mut out).unwrap();
        let got: Vec<usize> =
            out.chunks(2).map(|b| usize::from(u16::from_ne_bytes([b[0], b[1]]))).collect();
        assert_eq!(got, expected, "{view:?}");
        let row_major = expected.iter().zip(view.offset()..).all(|(&a, b)| a == b);
        assert_eq!(view.is_contiguous(), row_major, "{view:?}");
    }

    proptest! {
        /// Random chains of permute, slice and broadcast agree with indexing element by element.
        #[test]
        fn copies_agree_with_indexing(
            dims in prop::collection::vec(1usize..6, 0..5),
            swaps in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..3),
            cuts in prop::collection::vec((0usize..6, 1isize..4, any::<bool>()), 4),
            repeat in 1usize..4,
        ) {
            let shape = Shape::from(dims.clone());
            let mut view = Layout::contiguous(&shape).unwrap();
            let rank = dims.len();
            if rank > 0 {
                let mut perm: Vec<usize> = (0..rank).collect();
                for (a, b) in swaps {
                    perm.swap(a.index(rank), b.index(rank));
                }
                view = view.permuted(&perm).unwrap();
                for (axis, &(start, step, back)) in cuts.iter().enumerate().take(rank) {
                    let dim = view.dims()[axis];
                    let start = start % dim;
                    let room = if back { start } else { dim - 1 - start };
                    let len = room / step.unsigned_abs() + 1;
                    let step = if back { -step } else { step };
                    view = view.sliced(axis, start, step, len).unwrap();
                }
            }
            check(&view, shape.elements().unwrap());
            let mut wide = vec![repeat, 2];
            wide.extend(view.dims());
            check(&view.broadcast(&wide.into()).unwrap(), shape.elements().unwrap());
        }
    }

    #[test]
    fn large_transposes_agree_with_indexing() {
        let shape = Shape::from([3, 37, 50]);
        let view = Layout::contiguous(&shape).unwrap();
        for perm in [[0, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1], [1, 0, 2]] {
            check(&view.permuted(&perm).unwrap(), 3 * 37 * 50);
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let view = Layout::contiguous(&Shape::from([2, 3])).unwrap();
        for perm in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
            assert!(matches!(view.permuted(perm), Err(Error::Permutation { .. })), "{perm:?}");
        }
        for shape in [&[3][..], &[2, 4], &[2, 1]] {
            let shape = Shape::from(shape);
            assert!(matches!(view.broadcast(&shape), Err(Error::Broadcast { .. })), "{shape:?}");
        }
        for (axis, start, step, len) in
            [(2, 0, 1, 1), (1, 3, 1, 1), (1, 0, 1, 4), (1, 1, -1, 3), (1, 0, isize::MIN, 3)]
        {
            assert!(
                matches!(view.sliced(axis, start, step, len), Err(Error::Slice { .. })),
                "axis {axis}, start {start}, step {step}, len {len}"
            );
        }
        for (size, from, to) in [(4, 24, 20), (4, 20, 24), (3, 18, 18), (0, 0, 0)] {
            let copied = view.copy(size, &vec![0; from], &mut vec![0; to]);
            assert!(matches!(copied, Err(Error::CopyLength { .. })), "{size} {from} {to}");
        }
        assert!(Layout::contiguous(&Shape::from([usize::MAX, 2])).is_err());
        assert!(Layout::contiguous(&Shape::from([usize::MAX, usize::MAX, 0])).is_ok());
    }
}
