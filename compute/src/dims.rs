//! Arithmetic on dimensions that may be symbolic.

use crate::error::{Error, Result};
use lgp_memory::{Dim, SymShape};

/// The common size of two dimensions; an error when both are known and differ.
pub(crate) fn unify(what: &str, a: &Dim, b: &Dim) -> Result<Dim> {
    match (a, b) {
        (Dim::Known(x), Dim::Known(y)) if x != y => {
            Err(Error::invalid(format!("{what} is {y}, expected {x}")))
        }
        (Dim::Known(_), _) | (Dim::Symbol(_), Dim::Symbol(_) | Dim::Unknown) => Ok(a.clone()),
        _ => Ok(b.clone()),
    }
}

/// Fails when a dimension is known and not the expected one.
pub(crate) fn expect(what: &str, expected: &Dim, given: &Dim) -> Result<()> {
    unify(what, expected, given).map(drop)
}

/// Fails when the known dimensions of a shape contradict the expected shape.
pub(crate) fn expect_all(what: &str, expected: &[Dim], given: &[Dim]) -> Result<()> {
    if given.len() != expected.len() {
        let message = format!("{what} has rank {}, expected {}", given.len(), expected.len());
        return Err(Error::invalid(message));
    }
    let what = format!("a dimension of {what}");
    expected.iter().zip(given).try_for_each(|(expected, given)| expect(&what, expected, given))
}

/// Numpy's broadcasting of two shapes.
pub(crate) fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[Dim], axis: usize| match (axis + dims.len()).checked_sub(rank) {
        Some(i) => dims[i].clone(),
        None => Dim::Known(1),
    };
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (Dim::Known(1), d) | (d, Dim::Known(1)) => Ok(d),
            (Dim::Known(x), Dim::Known(y)) if x != y => {
                let (a, b) = (SymShape(a.to_vec()), SymShape(b.to_vec()));
                Err(Error::invalid(format!("cannot broadcast {a} and {b} to each other")))
            }
            // A symbol that broadcasts to a size other than 1 is that size or 1.
            (Dim::Known(x), _) | (_, Dim::Known(x)) => Ok(Dim::Known(x)),
            (x, y) if x == y => Ok(x),
            _ => Ok(Dim::Unknown),
        })
        .collect()
}

/// The sum.
pub(crate) fn add(a: &Dim, b: &Dim) -> Result<Dim> {
    match (a, b) {
        (Dim::Known(0), d) | (d, Dim::Known(0)) => Ok(d.clone()),
        (Dim::Known(x), Dim::Known(y)) => known(x.checked_add(*y)),
        _ => Ok(Dim::Unknown),
    }
}

/// The product.
pub(crate) fn mul(a: &Dim, b: &Dim) -> Result<Dim> {
    match (a, b) {
        (Dim::Known(1), d) | (d, Dim::Known(1)) => Ok(d.clone()),
        (Dim::Known(0), _) | (_, Dim::Known(0)) => Ok(Dim::Known(0)),
        (Dim::Known(x), Dim::Known(y)) => known(x.checked_mul(*y)),
        _ => Ok(Dim::Unknown),
    }
}

/// The product of all dimensions.
pub(crate) fn product(dims: &[Dim]) -> Result<Dim> {
    dims.iter().try_fold(Dim::Known(1), |n, d| mul(&n, d))
}

/// The product of `whole` divided by the product of `parts`. Equal symbols cancel; any symbol or
/// unknown dimension that is left in `parts` makes the quotient unknown.
pub(crate) fn quotient(whole: &[Dim], parts: &[Dim]) -> Result<Dim> {
    let mut whole = whole.to_vec();
    let mut rest = Vec::new();
    for part in parts {
        match whole.iter().position(|d| d == part && *d != Dim::Unknown) {
            Some(i) => drop(whole.swap_remove(i)),
            None => rest.push(part.clone()),
        }
    }
    let (fixed, others): (Vec<Dim>, Vec<Dim>) =
        whole.into_iter().partition(|dim| dim.known().is_some());
    match (product(&fixed)?, product(&rest)?) {
        (n, Dim::Known(1)) => mul(&product(&others)?, &n),
        // The known factor must divide alone, so that every unknown size stays a factor of the
        // quotient.
        (Dim::Known(n), Dim::Known(d)) if d > 0 && !others.is_empty() && n % d == 0 => {
            mul(&product(&others)?, &Dim::Known(n / d))
        }
        _ if !others.is_empty() => Ok(Dim::Unknown),
        (Dim::Known(n), Dim::Known(d)) if d > 0 => {
            if n % d == 0 {
                Ok(Dim::Known(n / d))
            } else {
                Err(Error::invalid(format!("{n} elements do not divide by {d}")))
            }
        }
        _ => Ok(Dim::Unknown),
    }
}

/// Whether two sizes are equal for all values of the symbols.
pub(crate) fn surely_equal(a: Option<&Dim>, b: Option<&Dim>) -> bool {
    a.is_some_and(|a| *a != Dim::Unknown) && a == b
}

fn known(size: Option<usize>) -> Result<Dim> {
    size.map(Dim::Known).ok_or_else(|| Error::invalid("a dimension overflows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(text: &str) -> Vec<Dim> {
        text.split_whitespace()
            .map(|word| match word.parse() {
                Ok(n) => Dim::Known(n),
                Err(_) if word == "?" => Dim::Unknown,
                Err(_) => Dim::Symbol(word.into()),
            })
            .collect()
    }

    #[test]
    fn shapes_broadcast_by_numpys_rules() {
        for (a, b, out) in [
            ("2 3", "3", Some("2 3")),
            ("n 1", "n 4", Some("n 4")),
            ("n", "1", Some("n")),
            ("n", "m", Some("?")),
            ("n", "7", Some("7")),
            ("", "2", Some("2")),
            ("0", "1", Some("0")),
            ("2", "3", None),
        ] {
            assert_eq!(broadcast(&dims(a), &dims(b)).ok(), out.map(dims), "{a} and {b}");
        }
    }

    #[test]
    fn what_is_unknown_is_equal_to_nothing() {
        let [a, n, m] = ["7 7 ?", "n 7 ?", "m n ?"].map(dims);
        let equal = |a: &[Dim], b: &[Dim]| [0, 1, 2, 3].map(|i| surely_equal(a.get(i), b.get(i)));
        assert_eq!(equal(&a, &n), [false, true, false, false]);
        assert_eq!(equal(&n, &n), [true, true, false, false]);
        assert_eq!(equal(&n, &m), [false; 4]);
    }

    #[test]
    fn quotients_cancel_symbols() {
        for (whole, parts, out) in [
            ("n 4 6", "n 3", Some("8")),
            ("n 4 6", "8", Some("?")),
            ("n 4", "4", Some("n")),
            ("n 2 2", "4", Some("n")),
            ("n 3", "2", Some("?")),
            ("2 6", "5", None),
            ("0 6", "0", Some("6")),
            ("6", "0", Some("?")),
            ("? 6", "?", Some("?")),
        ] {
            let got = quotient(&dims(whole), &dims(parts)).ok();
            assert_eq!(got.map(|d| vec![d]), out.map(dims), "{whole} / {parts}");
        }
    }
}
