/* Elements at given positions, one output a work-item: between the two nearest elements along each
   axis, or the nearest. Axes that x lacks are of size 1 and have no position. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif
#define NOWHERE 0xffffffffu

/* A position mirrored at both ends of an axis until it lies between them. */
DEVICE float reflected(float x, u32 size) {
    float low = ALIGN_CORNERS ? 0.0f : -0.5f, span = ALIGN_CORNERS ? (float)size - 1.0f : (float)size;
    float over = span > 0.0f ? fmod(x - low, 2.0f * span) : 0.0f;
    over = over < 0.0f ? over + 2.0f * span : over;
    return span > 0.0f ? (over > span ? 2.0f * span - over : over) + low : 0.0f;
}

/* Where -1 and 1 are the ends of an axis. */
DEVICE float place(float x, u32 size) {
    float n = (float)size;
    float at = ALIGN_CORNERS ? (x + 1.0f) / 2.0f * (n - 1.0f) : ((x + 1.0f) * n - 1.0f) / 2.0f;
    at = at != at ? 0.0f : at;
    at = LINEAR ? at : rint(at);
    return BORDER ? limited(at, 0.0f, n - 1.0f) : REFLECTION ? reflected(at, size) : at;
}

/* The element at a whole position. */
DEVICE u32 element(float at, u32 size) {
    at = BORDER ? limited(at, 0.0f, (float)size - 1.0f) : REFLECTION ? rint(reflected(at, size)) : at;
    /* NaN and infinity are not converted. */
    u32 whole = at >= 0.0f && at < (float)size ? (u32)at : NOWHERE;
    return whole < size ? whole : NOWHERE;
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void grid_sample(
    GLOBAL const X_TYPE *x, GLOBAL const GRID_TYPE *grid, GLOBAL Y_TYPE *y, u32 count, u32 channels,
    u32 points, u32 in_d, u32 in_h, u32 in_w EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 position = (i / (points * channels) * points + i % points) * AXES;
        float w = place(GRID_LOAD(grid, position), in_w);
        float h = AXES > 1 ? place(GRID_LOAD(grid, position + (AXES > 1 ? 1 : 0)), in_h) : 0.0f;
        float d = AXES > 2 ? place(GRID_LOAD(grid, position + (AXES > 2 ? 2 : 0)), in_d) : 0.0f;
        u32 from = i / points * (in_d * in_h * in_w);
        float sum = 0.0f;
        for (u32 corner = 0; corner < (LINEAR ? 1u << AXES : 1u); corner++) {
            float x1 = (float)(corner % 2), y1 = (float)(corner / 2 % 2), z1 = (float)(corner / 4);
            float rest_w = w - floor(w), rest_h = h - floor(h), rest_d = d - floor(d);
            float weight = x1 > 0.0f ? rest_w : 1.0f - rest_w;
            weight *= y1 > 0.0f ? rest_h : 1.0f - rest_h;
            weight *= z1 > 0.0f ? rest_d : 1.0f - rest_d;
            u32 aw = element(floor(w) + x1, in_w), ah = element(floor(h) + y1, in_h);
            u32 ad = element(floor(d) + z1, in_d);
            if (aw != NOWHERE && ah != NOWHERE && ad != NOWHERE && weight != 0.0f)
                sum += weight * LOAD(x, from + (ad * in_h + ah) * in_w + aw);
        }
        FINISH(sum, i);
    }
}
