/* Convolution of few input channels, without unfolding. A work-item computes STRIP outputs beside each
   other of MAPS maps: of each line of the input it holds what the strip sees, COLUMNS elements, and
   multiplies them with the weight, which the group keeps in local memory, [channel, tap, map]. All
   items of a wave read the same weight at a time, and lines that their windows share are still in the
   cache. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif
#define PRODUCTS (CHANNELS * KERNEL_H * KERNEL_W)
#define COLUMNS ((STRIP - 1) * STRIDE_W + (KERNEL_W - 1) * DILATION_W + 1)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void conv_direct(
    GLOBAL const X_TYPE *x, GLOBAL const X_TYPE *weight,
#if BIAS
    GLOBAL const X_TYPE *bias,
#endif
    GLOBAL Y_TYPE *y, u32 maps, u32 images, u32 in_h, u32 in_w, u32 out_h, u32 out_w EXTRA_PARAMETERS) {
    LOCAL float factors[PRODUCTS][MAPS] ALIGNED;
    u32 first = GROUP_ID(1) * MAPS;
    for (u32 e = LOCAL_ID(0); e < PRODUCTS * MAPS; e += GROUP_X) {
        u32 m = first + e % MAPS;
        factors[e / MAPS][e % MAPS] = m < maps ? LOAD(weight, m * PRODUCTS + e / MAPS) : 0.0f;
    }
    BARRIER();
    u32 item = GLOBAL_ID(0), strips = (out_w + STRIP - 1) / STRIP;
    u32 column = item % strips * STRIP, row = item / strips % out_h, image = item / (strips * out_h);
    if (image < images) {
        u32 top = row * STRIDE_H - PAD_H, side = column * STRIDE_W - PAD_W;
        float sum[MAPS][STRIP];
        for (u32 m = 0; m < MAPS; m++)
            for (u32 s = 0; s < STRIP; s++) sum[m][s] = 0.0f;
        _Pragma("unroll 1")
        for (u32 line = 0; line < CHANNELS * KERNEL_H; line++) {
            u32 h = top + line % KERNEL_H * DILATION_H;
            u32 from = ((image * CHANNELS + line / KERNEL_H) * in_h + h) * in_w;
            float seen[COLUMNS];
            UNROLL
            for (u32 c = 0; c < COLUMNS; c++) {
                /* Padding reads some element and drops it, which costs no branch. */
                u32 w = side + c;
                bool inside = h < in_h && w < in_w;
                float value = LOAD(x, inside ? from + w : 0);
                seen[c] = inside ? value : 0.0f;
            }
            UNROLL
            for (u32 kw = 0; kw < KERNEL_W; kw++) {
                UNROLL
                for (u32 m = 0; m < MAPS; m++) {
                    float factor = factors[line * KERNEL_W + kw][m];
                    UNROLL
                    for (u32 s = 0; s < STRIP; s++) sum[m][s] += factor * seen[s * STRIDE_W + kw * DILATION_W];
                }
            }
        }
        UNROLL
        for (u32 m = 0; m < MAPS; m++) {
            if (first + m < maps) {
#if BIAS
                float offset = LOAD(bias, first + m);
#else
                float offset = 0.0f;
#endif
                u32 at = ((image * maps + first + m) * out_h + row) * out_w + column;
                UNROLL
                for (u32 s = 0; s < STRIP; s++)
                    if (column + s < out_w) {
                        FINISH(sum[m][s] + offset, at + s);
                    }
            }
        }
    }
}
