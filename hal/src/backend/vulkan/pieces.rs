//! The dispatches of a grid, of which a driver may take only so many work-groups: the pure part.

/// The work-groups of one dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The first work-group in each dimension.
    pub(super) first: [u32; 3],
    /// The number of work-groups in each dimension.
    pub(super) groups: [u32; 3],
}

/// The pieces of a grid of `groups` work-groups, each of `most` at most in each dimension.
pub(super) fn pieces(groups: [u32; 3], most: [u32; 3]) -> impl Iterator<Item = Piece> {
    let along = move |axis: usize| {
        let (count, most) = (groups[axis], most[axis].max(1));
        (0..count).step_by(most as usize).map(move |first| (first, most.min(count - first)))
    };
    along(2).flat_map(move |z| {
        along(1).flat_map(move |y| {
            along(0).map(move |x| Piece { first: [x.0, y.0, z.0], groups: [x.1, y.1, z.1] })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_grid_once_and_keep_to_the_limits() {
        for (grid, most, expected) in [
            ([1, 1, 1], [65535, 65535, 65535], 1),
            ([65535, 1, 1], [65535, 65535, 65535], 1),
            ([70_000, 1, 1], [65535, 65535, 65535], 2),
            ([7, 5, 4], [3, 2, 4], 9),
            ([3, 2, 5], [3, 2, 1], 5),
        ] {
            let all: Vec<Piece> = pieces(grid, most).collect();
            assert_eq!(all.len(), expected, "{grid:?}");
            let mut groups = 0u64;
            for (at, it) in all.iter().enumerate() {
                assert!((0..3).all(|d| (1..=most[d]).contains(&it.groups[d])), "{it:?}");
                assert!((0..3).all(|d| it.first[d] + it.groups[d] <= grid[d]), "{it:?}");
                assert!(all[..at].iter().all(|other| other.first != it.first), "{it:?}");
                groups += it.groups.iter().map(|&side| u64::from(side)).product::<u64>();
            }
            let whole: u64 = grid.iter().map(|&side| u64::from(side)).product();
            assert_eq!(groups, whole, "{grid:?}");
        }
        assert_eq!(
            pieces([70_000, 1, 1], [65535; 3]).last(),
            Some(Piece { first: [65535, 0, 0], groups: [4465, 1, 1] })
        );
    }
}
