/* The sum of the SPLITS copies of a convolution's output, each of some of its channels. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void conv_sum(
    GLOBAL const NUMBER *parts,
#if BIAS
    GLOBAL const X_TYPE *bias,
#endif
    GLOBAL Y_TYPE *y, u32 count, u32 plane, u32 maps EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
#if BIAS
        NUMBER sum = LOAD(bias, i / plane % maps);
#else
        NUMBER sum = 0;
#endif
        for (u32 part = 0; part < SPLITS; part++) sum += parts[part * count + i];
        FINISH(sum, i);
    }
}
