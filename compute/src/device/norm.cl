/* Lines of n neighbouring elements: (x - mean) / sqrt(variance + epsilon), with the mean 0 unless
   CENTRED, times SCALE(line, j) and plus BIAS(line, j) for the element j. A line has `per_line` of
   `channels` channels, of `plane` elements each.

   A work-group has a line, or with SPLITS `share` elements of one, of which norm_part has left the
   mean and the sum of squared distances from it. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif
#define CHANNEL(line, j) (((line) * per_line + (j) / plane) % channels)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void norm_lines(GLOBAL const STORED *x, PARAMETERS GLOBAL Y_TYPE *y, u32 n, u32 channels, u32 per_line, u32 plane,
          u32 share, float epsilon EXTRA_PARAMETERS) {
    u32 line = GROUP_ID(0) / SPLITS, begin = GROUP_ID(0) % SPLITS * share;
    u32 end = begin + share < n ? begin + share : n;
    u32 start = line * n;
    float mean = 0.0f, square = 0.0f;
#if SPLITS > 1
    for (u32 part = 0; part < SPLITS; part++) {
        u32 count = part * share + share < n ? share : n - part * share;
        mean += parts[2 * (line * SPLITS + part)] * (float)count;
    }
    mean /= (float)n;
    for (u32 part = 0; part < SPLITS; part++) {
        u32 count = part * share + share < n ? share : n - part * share;
        float apart = parts[2 * (line * SPLITS + part)] - mean;
        square += parts[2 * (line * SPLITS + part) + 1] + apart * apart * (float)count;
    }
#else
    LOCAL float shared[LANES][COLUMNS];
    MOMENTS
#endif
    float factor = 1.0f / sqrt(square / (float)n + epsilon);
    for (u32 j = begin + LANE; j < end; j += LANES) {
        FINISH((LOAD(start + j) - mean) * factor * SCALE(line, j) + BIAS(line, j), start + j);
    }
}
