/* Picks slices of `run` elements by tuples of indices, one element a work-item. SLICE(tuple) is a
   slice's number in its batch. Each batch has `slices` slices and `tuples` tuples. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void gather_nd(GLOBAL const WORD *x, GLOBAL const INDEX *indices, GLOBAL WORD *y, u32 count, u32 run, u32 tuples,
               u32 slices) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 own = i / run;
        y[i] = x[(own / tuples * slices + (SLICE(own))) * run + i % run];
    }
}
