/* Adds the parts of each sum. A part of all sums has `count` elements and lies as the result. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void sum_parts(GLOBAL const SUM *part, OPERANDS GLOBAL Y_TYPE *y, u32 m, u32 n, u32 row_step, u32 column_step,
               u32 count, u32 parts EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        SUM sum = part[i];
        for (u32 p = 1; p < parts; p++) sum += part[p * count + i];
        FINISH(RESULT(sum, i / row_step % m, i / column_step % n), i);
    }
}
