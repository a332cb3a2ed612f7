/* Quantisation to u8 with a scale and zero point that bring 0 and all of x into range: each
   work-group finds the least and the largest element of its part, one group those of all parts,
   and then the parts are quantised. */
#define FIND(low, high)                                                                            \
    lows[item] = low;                                                                              \
    highs[item] = high;                                                                            \
    for (u32 step = GROUP_X / 2; step > 0; step /= 2) {                                            \
        BARRIER();                                                                                 \
        if (item < step) {                                                                         \
            lows[item] = least(lows[item], lows[item + step]);                                     \
            highs[item] = most(highs[item], highs[item + step]);                                   \
        }                                                                                          \
    }

/* NaN shows in the result. */
DEVICE float least(float a, float b) { return a != a || a < b ? a : b; }
DEVICE float most(float a, float b) { return a != a || a > b ? a : b; }

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void find_bounds(GLOBAL const float *x, GLOBAL float *bounds, u32 count) {
    LOCAL float lows[GROUP_X];
    LOCAL float highs[GROUP_X];
    u32 item = LOCAL_ID(0);
    float low = 0.0f, high = 0.0f;
    for (u32 i = GLOBAL_ID(0); i < count; i += GROUPS(0) * GROUP_X) {
        low = least(low, x[i]);
        high = most(high, x[i]);
    }
    FIND(low, high)
    if (item == 0) {
        bounds[2 * GROUP_ID(0)] = lows[0];
        bounds[2 * GROUP_ID(0) + 1] = highs[0];
    }
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void find_scale(GLOBAL const float *bounds, GLOBAL float *scale, GLOBAL u8 *zero, u32 count) {
    LOCAL float lows[GROUP_X];
    LOCAL float highs[GROUP_X];
    u32 item = LOCAL_ID(0);
    float low = 0.0f, high = 0.0f;
    for (u32 i = item; i < count; i += GROUP_X) {
        low = least(low, bounds[2 * i]);
        high = most(high, bounds[2 * i + 1]);
    }
    FIND(low, high)
    if (item == 0) {
        float step = divide(highs[0] - lows[0], 255.0f);
        step = step == 0.0f ? 1.0f : step;
        scale[0] = step;
        zero[0] = (u8)fmin(fmax(rint(divide(-lows[0], step)), 0.0f), 255.0f);
    }
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void quantize(GLOBAL const float *x, GLOBAL const float *scale, GLOBAL const u8 *zero, GLOBAL u8 *y, u32 count) {
    for (u32 i = GLOBAL_ID(0); i < count; i += GROUPS(0) * GROUP_X) {
        float middle = (float)zero[0];
        y[i] = (u8)(rint(fmin(fmax(divide(x[i], scale[0]), -middle), 255.0f - middle)) + middle);
    }
}
