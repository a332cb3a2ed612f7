#ifdef BLOCK_BITS
/* A right operand whose elements have BLOCK_BITS bits each, the first in the lowest bits. It lies
   column by column; a column has BLOCKS blocks of BLOCK_SIZE elements, a multiple of 8, along the
   sum. Each block has a scale and a zero point, BLOCK_ZERO(side, block), which is read from `zero`
   where the operand has zero points. */
#define BLOCK_BYTES (BLOCKS * BLOCK_SIZE * BLOCK_BITS / 8)
#define BLOCK_MASK ((1u << BLOCK_BITS) - 1)

DEVICE u32 bits_at(GLOBAL const u8 *bytes, u32 i) {
    return (u32)bytes[i * BLOCK_BITS / 8] >> (i * BLOCK_BITS % 8) & BLOCK_MASK;
}

DEVICE float block_element(GLOBAL const u8 *w, GLOBAL const float *scale, BLOCK_ZEROS u32 side, u32 depth) {
    float q = (float)bits_at(w + side * BLOCK_BYTES, depth);
    u32 block = depth / BLOCK_SIZE;
    return (q - BLOCK_ZERO(side, block)) * scale[side * BLOCKS + block];
}

/* Four elements of one block, the first at a multiple of four. */
DEVICE void block_vector(float *to, GLOBAL const u8 *w, GLOBAL const float *scale, BLOCK_ZEROS u32 side, u32 depth) {
    u32 block = depth / BLOCK_SIZE;
    float zero_ = BLOCK_ZERO(side, block), factor = scale[side * BLOCKS + block];
#if BLOCK_BITS == 8
    u32 q = load_u32(w, side * BLOCK_BYTES + depth);
#elif BLOCK_BITS == 4
    u32 q = load_u32(w, side * BLOCK_BYTES + depth / 8 * 4) >> (depth % 8 * 4);
#else
    u32 q = w[side * BLOCK_BYTES + depth / 4];
#endif
    for (u32 i = 0; i < 4; i++) to[i] = ((float)(q >> (i * BLOCK_BITS) & BLOCK_MASK) - zero_) * factor;
}
#endif
