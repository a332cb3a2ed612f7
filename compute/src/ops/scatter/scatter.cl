/* Updates of a copy of the data. COMBINED(a, b) is the element a after the update b; SLICE(tuple)
   is the number of the slice that a tuple of indices names. */

/* All updates of a line, one line a work-item. FROM(i) and TO(i) are the line's first elements in
   the updates and in the data. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void scatter_elements(GLOBAL const INDEX *indices, GLOBAL const TYPE *updates, GLOBAL TYPE *y, u32 lines, u32 each,
                      u32 from_step, u32 size, u32 to_step) {
    u32 i = GLOBAL_ID(0);
    if (i < lines) {
        u32 from = FROM(i), to = TO(i);
        for (u32 j = 0; j < each; j++) {
            u32 at = to + element_of((i64)indices[from + j * from_step], size) * to_step;
            y[at] = COMBINED(y[at], updates[from + j * from_step]);
        }
    }
}

/* All updates of one element of each slice. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void scatter_slices(GLOBAL const INDEX *indices, GLOBAL const TYPE *updates, GLOBAL TYPE *y, u32 run, u32 tuples) {
    u32 i = GLOBAL_ID(0);
    if (i < run) {
        for (u32 t = 0; t < tuples; t++) {
            u32 at = (SLICE(t)) * run + i;
            y[at] = COMBINED(y[at], updates[t * run + i]);
        }
    }
}

/* One more than the number of the last tuple that names a slice. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void scatter_last(GLOBAL const INDEX *indices, GLOBAL u32 *last, u32 tuples) {
    u32 t = GLOBAL_ID(0);
    if (t < tuples) {
        volatile GLOBAL u32 *own = last + (SLICE(t));
        u32 seen = 0, old;
        do {
            old = seen;
            seen = compare_and_swap(own, old, t + 1);
        } while (seen != old && seen < t + 1);
    }
}

/* One element of a slice, if no later update names the slice. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void scatter_latest(GLOBAL const INDEX *indices, GLOBAL const TYPE *updates, GLOBAL const u32 *last, GLOBAL TYPE *y,
                    u32 count, u32 run) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 slice = SLICE(i / run);
        if (last[slice] == i / run + 1) y[slice * run + i % run] = updates[i];
    }
}
