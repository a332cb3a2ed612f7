//! Discrete Fourier transforms of any length in n·log n: by halves where the length is a power of
//! two, and as a convolution (Bluestein) otherwise.

use crate::error::Result;
use crate::list::list;
use std::f64::consts::PI;

/// Real and imaginary part.
pub(super) type Complex = (f64, f64);

fn times((a, b): Complex, (c, d): Complex) -> Complex {
    (a * c - b * d, a * d + b * c)
}

/// The unit vector at `-angle`.
#[allow(clippy::cast_precision_loss, reason = "lengths that fit into memory are exact enough")]
fn turn(numerator: usize, denominator: usize) -> Complex {
    let angle = -2. * PI * numerator as f64 / denominator as f64;
    (angle.cos(), angle.sin())
}

/// The tables that all transforms of one length use.
pub(super) struct Plan {
    n: usize,
    /// The unit vectors of the transform by halves.
    turns: Vec<Complex>,
    /// The chirp, and the transform of its conjugate, where the length is no power of two.
    chirp: Option<(Vec<Complex>, Vec<Complex>)>,
}

impl Plan {
    pub(super) fn new(n: usize) -> Result<Self> {
        let turns = |size: usize| list((0..size / 2).map(|i| turn(i, size)));
        if n.is_power_of_two() {
            return Ok(Self { n, turns: turns(n)?, chirp: None });
        }
        let size = (2 * n).next_power_of_two();
        // i² modulo 2n: without whole turns, the angle loses no precision.
        let square = |i: usize| (i as u128 * i as u128 % (2 * n) as u128) as usize;
        let chirp = list((0..n).map(|i| turn(square(i), 2 * n)))?;
        let mut filter = list(std::iter::repeat_n((0., 0.), size))?;
        for (i, &(re, im)) in chirp.iter().enumerate() {
            filter[i] = (re, -im);
            filter[(size - i) % size] = (re, -im);
        }
        let turns = turns(size)?;
        halves(&mut filter, &turns);
        Ok(Self { n, turns, chirp: Some((chirp, filter)) })
    }

    /// The working memory that a thread needs besides its line.
    pub(super) fn work(&self) -> Result<Vec<Complex>> {
        let size = self.chirp.as_ref().map_or(0, |(_, filter)| filter.len());
        list(std::iter::repeat_n((0., 0.), size))
    }

    /// Transforms a line of the plan's length, with memory of [`Plan::work`]. The inverse is not
    /// divided by the length.
    #[allow(clippy::cast_precision_loss, reason = "a length")]
    pub(super) fn run(&self, line: &mut [Complex], work: &mut [Complex], inverse: bool) {
        let conjugate = |line: &mut [Complex]| line.iter_mut().for_each(|x| x.1 = -x.1);
        if inverse {
            conjugate(line);
        }
        match &self.chirp {
            None => halves(line, &self.turns),
            Some((chirp, filter)) => {
                work.fill((0., 0.));
                for (w, (x, c)) in work.iter_mut().zip(line.iter().zip(chirp)) {
                    *w = times(*x, *c);
                }
                halves(work, &self.turns);
                for (w, f) in work.iter_mut().zip(filter) {
                    let (re, im) = times(*w, *f);
                    // The inverse is the transform between two conjugations.
                    *w = (re, -im);
                }
                halves(work, &self.turns);
                let size = filter.len() as f64;
                for (x, (w, c)) in line.iter_mut().zip(work.iter().zip(chirp)) {
                    *x = times((w.0 / size, -w.1 / size), *c);
                }
            }
        }
        if inverse {
            conjugate(line);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.n
    }
}

/// The multiply-adds of a transform of `n`: four for each product of complex numbers.
pub(super) fn multiply_adds(n: usize) -> u64 {
    let by_halves = |size: u64| (size / 2).saturating_mul(u64::from(size.trailing_zeros()));
    let n = n as u64;
    let products = if n.is_power_of_two() {
        by_halves(n)
    } else {
        let size = n.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX);
        let chirps = n.saturating_mul(2).saturating_add(size);
        by_halves(size).saturating_mul(2).saturating_add(chirps)
    };
    products.saturating_mul(4)
}

/// Cooley and Tukey's transform in place; the length is a power of two, and `turns` are half as
/// many unit vectors.
fn halves(x: &mut [Complex], turns: &[Complex]) {
    let n = x.len();
    if n < 2 {
        return;
    }
    let shift = usize::BITS - n.trailing_zeros();
    for i in 0..n {
        let j = i.reverse_bits() >> shift;
        if i < j {
            x.swap(i, j);
        }
    }
    let mut half = 1;
    while half < n {
        for block in x.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (i, (a, b)) in low.iter_mut().zip(high).enumerate() {
                let t = times(*b, turns[i * (n / 2 / half)]);
                *b = (a.0 - t.0, a.1 - t.1);
                *a = (a.0 + t.0, a.1 + t.1);
            }
        }
        half *= 2;
    }
}
