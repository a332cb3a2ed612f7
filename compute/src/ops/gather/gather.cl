/* Picks slices of `inner` elements by index along an axis of `size`, one element a work-item. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void gather(GLOBAL const WORD *x, GLOBAL const INDEX *indices,
                                                         GLOBAL WORD *y, u32 count, u32 size, u32 picked,
                                                         u32 inner) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 outer = i / inner / picked;
        u32 index = element_of((i64)indices[i / inner % picked], size);
        y[i] = x[(outer * size + index) * inner + i % inner];
    }
}
