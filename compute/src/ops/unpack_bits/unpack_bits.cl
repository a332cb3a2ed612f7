/* Elements of BITS bits, packed along k in blocks that share a scale, as f32 of k × n. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE float
#define FINISH(value, index) y[index] = (value)
#endif

DEVICE float element(GLOBAL const u8 *bytes, u32 i) {
    return (float)((bytes[i * BITS / 8] >> (i * BITS % 8)) & ((1 << BITS) - 1));
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void unpack_bits(GLOBAL const u8 *packed, GLOBAL const float *scale, ZERO_POINTER GLOBAL Y_TYPE *y, u32 k, u32 n,
                 u32 blocks, u32 block EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < k * n) {
        u32 row = i / n, column = i % n;
        u32 group = column * blocks + row / block;
        float q = element(packed + group * (block * BITS / 8), row % block);
        FINISH((q - ZERO(group, column)) * scale[group], i);
    }
}
