/* Each channel, of `plane` neighbouring elements, by its own running mean and variance. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void batch_norm(GLOBAL const STORED *x, GLOBAL const STORED *scale, GLOBAL const STORED *bias,
                GLOBAL const STORED *mean, GLOBAL const STORED *variance, GLOBAL Y_TYPE *y, u32 count,
                u32 channels, u32 plane, float epsilon EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 c = i / plane % channels;
        float factor = LOAD(scale, c) / sqrt(LOAD(variance, c) + epsilon);
        FINISH(LOAD(x, i) * factor + (LOAD(bias, c) - LOAD(mean, c) * factor), i);
    }
}
