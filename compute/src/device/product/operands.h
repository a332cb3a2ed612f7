/* How kernels of products load their operands. */
DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }

/* The bytes of a word, the lowest first. */
DEVICE void unpack_u8(TILE *to, u32 x) {
    for (u32 i = 0; i < 4; i++) to[i] = (TILE)(x >> (8 * i) & 0xff);
}
DEVICE void unpack_i8(TILE *to, u32 x) {
    for (u32 i = 0; i < 4; i++) to[i] = (TILE)(i8)(x >> (8 * i));
}

DEVICE void unpack4(float *to, float4 x) {
    to[0] = x.x;
    to[1] = x.y;
    to[2] = x.z;
    to[3] = x.w;
}

/* The place of the element at `depth` of row or column `side`, of `size` rows or columns. */
DEVICE u32 place(u32 along, u32 size, u32 k, u32 side, u32 depth) {
    return along ? side * k + depth : depth * size + side;
}
