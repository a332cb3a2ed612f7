/* round(x / scale) + zero, half to even, saturated; NaN becomes the least. SCALE_AT(i) says which
   scale and zero point an element has. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void quantize_linear(GLOBAL const X_TYPE *x, GLOBAL const float *scale, ZERO_POINTER GLOBAL Y_TYPE *y, u32 count,
                     u32 inner, u32 along, u32 block) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 at = SCALE_AT(i);
        i32 zero = ZERO(at);
        float q = divide(LOAD(i), scale[at]);
        y[i] = (Y_TYPE)((i32)rint(fmin(fmax(q, (float)(LOW - zero)), (float)(HIGH - zero))) + zero);
    }
}
