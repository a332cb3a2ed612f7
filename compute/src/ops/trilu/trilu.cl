/* The elements above or below a diagonal, and zeros elsewhere, one element a work-item. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void trilu(GLOBAL const WORD *x, GLOBAL WORD *y, u32 count, u32 rows, u32 columns, i32 diagonal) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        i32 right = (i32)(i % columns) - (i32)(i / columns % rows) - diagonal;
        y[i] = (UPPER ? right >= 0 : right <= 0) ? x[i] : 0;
    }
}
