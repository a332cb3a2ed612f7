//! Kernels over lines of elements, with several work-items for each line; see `lines.h`.

use super::kernel::{Kernel, groups};

/// Lines of at least so many elements get larger work-groups.
const LONG: usize = 1024;

/// The kernel `name` of `body`, which begins with `lines.h`, for `count` lines of `n` elements that
/// lie `apart` elements apart; and the number of its work-groups.
pub(crate) fn kernel_of_lines(
    name: &'static str,
    body: &'static str,
    [count, n, apart]: [usize; 3],
) -> (Kernel, usize) {
    // Neighbouring work-items read neighbours in memory.
    let (group, columns) = match (apart, n) {
        (1, LONG..) => ([256, 1, 1], 1),
        (1, _) => ([64, 1, 1], 1),
        _ => ([32, 8, 1], 32),
    };
    let kernel = Kernel::new(name, body, group).define("LINES_APART", u8::from(apart != 1));
    (kernel, groups(count, columns))
}
