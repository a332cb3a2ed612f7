/* The mean and the sum of squared distances of `share` elements of a line, one share a work-group. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void norm_part(GLOBAL const STORED *x, GLOBAL float *parts, u32 n, u32 share) {
    LOCAL float shared[LANES][COLUMNS];
    u32 begin = GROUP_ID(0) % SPLITS * share, end = begin + share < n ? begin + share : n;
    u32 start = GROUP_ID(0) / SPLITS * n;
    float mean = 0.0f, square = 0.0f;
    MOMENTS
    if (LANE == 0) {
        parts[2 * GROUP_ID(0)] = mean;
        parts[2 * GROUP_ID(0) + 1] = square;
    }
}
