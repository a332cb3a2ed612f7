/* Resampling of planes, one output a work-item: the nearest element, or a mixture of the nearest
   two along each axis. PLACE_D(i) is output i's place, the numerator of a fraction with the
   denominator PARTS_D, and so for H and W. DEEP tells whether the depth changes. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif

/* A place inside of the input, in parts. */
DEVICE u32 inside(i32 place, i32 parts, u32 size) {
    u32 at = place < 0 ? 0u : (u32)place, last = (size - 1) * (u32)parts;
    return at < last ? at : last;
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void resize(
    GLOBAL const X_TYPE *x, GLOBAL Y_TYPE *y, u32 planes, u32 in_d, u32 in_h, u32 in_w, u32 out_d,
    u32 out_h, u32 out_w EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    u32 ow = i % out_w, oh = i / out_w % out_h, od = i / (out_w * out_h) % out_d;
    u32 plane = i / (out_w * out_h * out_d), from = plane * in_d * in_h * in_w;
    if (plane < planes) {
        u32 d = inside(PLACE_D((i32)od), PARTS_D, in_d);
        u32 h = inside(PLACE_H((i32)oh), PARTS_H, in_h);
        u32 w = inside(PLACE_W((i32)ow), PARTS_W, in_w);
        u32 d0 = d / PARTS_D, h0 = h / PARTS_H, w0 = w / PARTS_W;
#if LINEAR
        float rest_h = (float)(h % PARTS_H) / (float)PARTS_H;
        float rest_w = (float)(w % PARTS_W) / (float)PARTS_W;
        u32 d1 = d0 + 1 < in_d ? d0 + 1 : d0, h1 = h0 + 1 < in_h ? h0 + 1 : h0;
        u32 w1 = w0 + 1 < in_w ? w0 + 1 : w0;
        float lines[2 + 2 * DEEP];
        for (u32 corner = 0; corner < 2 + 2 * DEEP; corner++) {
            u32 line = from + ((corner / 2 ? d1 : d0) * in_h + (corner % 2 ? h1 : h0)) * in_w;
            float a = LOAD(x, line + w0), b = LOAD(x, line + w1);
            lines[corner] = a + (b - a) * rest_w;
        }
        float sum = lines[0] + (lines[1] - lines[0]) * rest_h;
#if DEEP
        float below = lines[2] + (lines[3] - lines[2]) * rest_h;
        sum = sum + (below - sum) * ((float)(d % PARTS_D) / (float)PARTS_D);
#endif
        FINISH(sum, i);
#else
        FINISH(LOAD(x, from + (d0 * in_h + h0) * in_w + w0), i);
#endif
    }
}
