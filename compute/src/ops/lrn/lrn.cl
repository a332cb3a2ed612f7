/* Local response normalisation across channels, one output a work-item. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void lrn(
    GLOBAL const X_TYPE *x, GLOBAL Y_TYPE *y, u32 count, u32 channels, u32 plane, u32 before,
    u32 after, float scale, float bias, float beta EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 channel = i / plane % channels;
        u32 first = channel < before ? 0 : channel - before;
        u32 last = channels - 1 - channel < after ? channels - 1 : channel + after;
        float sum = 0.0f;
        for (u32 c = first; c <= last; c++) {
            float value = LOAD(x, i - channel * plane + c * plane);
            sum += value * value;
        }
        FINISH(LOAD(x, i) / pow(bias + scale * sum, beta), i);
    }
}
