
/* The part that both compilers share. */
DEVICE float load_bf16(GLOBAL const bf16 *p, u32 i) { return F32_BITS((u32)p[i] << 16); }
DEVICE void store_bf16(float x, GLOBAL bf16 *p, u32 i) {
    u32 bits = BITS_F32(x);
    u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
    p[i] = (bf16)((x != x ? bits | 0x400000 : rounded) >> 16);
}
