/* Picks single elements along an axis of `size` elements that are `step` apart, one a work-item.
   PLACE(i) is the first element of the line that output i belongs to. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void gather_elements(GLOBAL const WORD *x, GLOBAL const INDEX *indices, GLOBAL WORD *y, u32 count, u32 size,
                     u32 step) {
    u32 i = GLOBAL_ID(0);
    if (i < count) y[i] = x[PLACE(i) + element_of((i64)indices[i], size) * step];
}
