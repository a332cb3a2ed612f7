/* The on value where the class is the index, which counts from the back where it is negative, and
   the off value elsewhere. One element a work-item. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void one_hot(GLOBAL const INDEX *indices, GLOBAL const WORD *values, GLOBAL WORD *y, u32 count, u32 depth, u32 inner) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        i64 index = (i64)indices[i / (depth * inner) * inner + i % inner];
        i64 class_ = (i64)(i / inner % depth);
        y[i] = values[index == class_ || index + (i64)depth == class_ ? 1 : 0];
    }
}
