/* Lines of n neighbouring elements, one per work-group: (x - mean) / sqrt(variance + epsilon), with
   the mean 0 unless CENTRED, times SCALE(line, j) and plus BIAS(line, j) for the element j.
   A line has `per_line` of `channels` channels, of `plane` elements each. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif
#define CHANNEL(line, j) (((line) * per_line + (j) / plane) % channels)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void norm_lines(GLOBAL const STORED *x, PARAMETERS GLOBAL Y_TYPE *y, u32 n, u32 channels, u32 per_line, u32 plane,
          float epsilon EXTRA_PARAMETERS) {
    LOCAL float shared[LANES][COLUMNS];
    u32 line = GROUP_ID(0);
    u32 start = line * n;
    float mean = 0.0f, square = 0.0f;
    if (CENTRED) {
        for (u32 j = LANE; j < n; j += LANES) mean += LOAD(start + j);
        COMBINE(mean, plus, shared)
        mean /= (float)n;
    }
    for (u32 j = LANE; j < n; j += LANES) {
        float apart = LOAD(start + j) - mean;
        square += apart * apart;
    }
    COMBINE(square, plus, shared)
    float factor = 1.0f / sqrt(square / (float)n + epsilon);
    for (u32 j = LANE; j < n; j += LANES) {
        FINISH((LOAD(start + j) - mean) * factor * SCALE(line, j) + BIAS(line, j), start + j);
    }
}
