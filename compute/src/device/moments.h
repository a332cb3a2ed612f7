/* The mean of a line's elements from `begin` to `end`, 0 unless CENTRED, and the sum of squared
   distances from it. */
#define MOMENTS                                                                                    \
    if (CENTRED) {                                                                                 \
        for (u32 j = begin + LANE; j < end; j += LANES) mean += LOAD(start + j);                   \
        COMBINE(mean, plus, shared)                                                                \
        mean /= (float)(end - begin);                                                              \
    }                                                                                              \
    for (u32 j = begin + LANE; j < end; j += LANES) {                                              \
        float apart = LOAD(start + j) - mean;                                                      \
        square += apart * apart;                                                                   \
    }                                                                                              \
    COMBINE(square, plus, shared)
