/* Rotates pairs of elements of each head by the angle of their position, one element a work-item.
   With HEADS_FIRST, heads come before positions. A position without an angle gives NaN. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void rotary_embedding(GLOBAL const STORED *x, GLOBAL const STORED *cos_, GLOBAL const STORED *sin_, IDS_POINTER
                      GLOBAL Y_TYPE *y, u32 count, u32 heads, u32 length, u32 size, u32 pairs,
                      u32 positions EXTRA_PARAMETERS) {
    u32 place = GLOBAL_ID(0);
    if (place >= count) return;
    u32 row = place / size, e = place % size;
    u32 token = HEADS_FIRST ? row / (heads * length) * length + row % length : row / heads;
    if (e >= 2 * pairs) {
        FINISH(LOAD(x, place), place);
        return;
    }
    u32 pair = INTERLEAVED ? e / 2 : e % pairs;
    u32 second = INTERLEAVED ? e % 2 : e / pairs;
    u32 a = row * size + (INTERLEAVED ? 2 * pair : pair);
    u32 b = a + (INTERLEAVED ? 1 : pairs);
    i64 position = POSITION(token);
    float result = NAN;
    if (position >= 0 && position < positions) {
        float c = LOAD(cos_, (u32)position * pairs + pair), s = LOAD(sin_, (u32)position * pairs + pair);
        result = second ? s * LOAD(x, a) + c * LOAD(x, b) : c * LOAD(x, a) - s * LOAD(x, b);
    }
    FINISH(result, place);
}
