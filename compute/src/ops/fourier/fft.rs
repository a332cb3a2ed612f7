//! Discrete Fourier transforms of any length in n·log n: by halves where the length is a power of
//! two, and as a convolution (Bluestein) otherwise.

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

/// What transforms of one length share.
pub(super) struct Plan {
    n: usize,
    /// The chirp, and the transform of its conjugate, where the length is no power of two.
    chirp: Option<(Vec<Complex>, Vec<Complex>)>,
}

impl Plan {
    pub(super) fn new(n: usize) -> Self {
        if n.is_power_of_two() {
            return Self { n, chirp: None };
        }
        let size = (2 * n).next_power_of_two();
        // i² modulo 2n: the angle's whole turns cost no precision.
        let square = |i: usize| (i as u128 * i as u128 % (2 * n) as u128) as usize;
        let chirp: Vec<Complex> = (0..n).map(|i| turn(square(i), 2 * n)).collect();
        let mut filter = vec![(0., 0.); size];
        for (i, &(re, im)) in chirp.iter().enumerate() {
            filter[i] = (re, -im);
            filter[(size - i) % size] = (re, -im);
        }
        halves(&mut filter);
        Self { n, chirp: Some((chirp, filter)) }
    }

    /// Transforms a line of the plan's length; without the inverse's division.
    #[allow(clippy::cast_precision_loss, reason = "a length")]
    pub(super) fn run(&self, line: &mut [Complex], inverse: bool) {
        let conjugate = |line: &mut [Complex]| line.iter_mut().for_each(|x| x.1 = -x.1);
        if inverse {
            conjugate(line);
        }
        match &self.chirp {
            None => halves(line),
            Some((chirp, filter)) => {
                let mut work = vec![(0., 0.); filter.len()];
                for (w, (x, c)) in work.iter_mut().zip(line.iter().zip(chirp)) {
                    *w = times(*x, *c);
                }
                halves(&mut work);
                for (w, f) in work.iter_mut().zip(filter) {
                    let (re, im) = times(*w, *f);
                    // The way back is the way there between two conjugations.
                    *w = (re, -im);
                }
                halves(&mut work);
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

/// Cooley and Tukey's transform in place; the length is a power of two.
fn halves(x: &mut [Complex]) {
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
    let turns: Vec<Complex> = (0..n / 2).map(|i| turn(i, n)).collect();
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
