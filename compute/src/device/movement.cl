/* Moves elements from one strided layout to another, one per work-item. PARAMETERS has a size and
   two steps for each dimension. PLACES finds the position in each dimension from `rest`, innermost
   first, and adds its steps to `from` and `to`. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void move_elements(GLOBAL const WORD *x, GLOBAL WORD *y,
                                                                u32 count, i32 from, i32 to PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 rest = i;
        PLACES
        y[to] = x[from];
    }
}
