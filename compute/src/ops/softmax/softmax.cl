/* The softmax of `count` lines of n elements, which are `apart` elements apart. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void softmax(GLOBAL const STORED *x, GLOBAL Y_TYPE *y, u32 count, u32 n, u32 apart EXTRA_PARAMETERS) {
    LOCAL float shared[LANES][COLUMNS];
    u32 line = GROUP_ID(0) * COLUMNS + COLUMN;
    u32 known = line < count ? line : count - 1;
    u32 start = known / apart * apart * n + known % apart;
    float top = -INFINITY, sum = 0.0f;
    for (u32 i = LANE; i < n; i += LANES) top = fmax(top, LOAD(start + i * apart));
    COMBINE(top, fmax, shared)
    for (u32 i = LANE; i < n; i += LANES) sum += exp(LOAD(start + i * apart) - top);
    COMBINE(sum, plus, shared)
    /* The logarithm in two steps: the sum of a large maximum and a small logarithm would be rounded. */
    float factor = LOGARITHM ? log(sum) : 1.0f / sum;
    if (line < count) {
        for (u32 i = LANE; i < n; i += LANES) {
            float above = LOAD(start + i * apart) - top;
            FINISH(LOGARITHM ? above - factor : exp(above) * factor, start + i * apart);
        }
    }
}
