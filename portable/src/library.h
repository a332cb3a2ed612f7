/* Functions of the language that no instruction of SPIR-V computes with C's accuracy. */

DEVICE u32 rounded_bf16_(float x) {
    u32 bits = BITS_F32(x);
    u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return (x != x ? bits | 0x400000 : rounded) >> 16;
}

DEVICE bool isfinite(float x) { return fabs(x) < INFINITY; }

DEVICE float copysign(float x, float y) {
    return F32_BITS((BITS_F32(x) & 0x7fffffff) | (BITS_F32(y) & 0x80000000));
}

DEVICE float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f; }
