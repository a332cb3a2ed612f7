/* (x - zero) * scale. SCALE_AT(i) says which scale and zero point an element has. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void dequantize_linear(GLOBAL const X_TYPE *x, GLOBAL const SCALE_TYPE *scale, ZERO_POINTER GLOBAL Y_TYPE *y,
                       u32 count, u32 inner, u32 along, u32 block EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 at = SCALE_AT(i);
        i32 difference = (i32)((u32)x[i] - (u32)ZERO(at));
        FINISH((float)difference * LOAD_SCALE(at), i);
    }
}
