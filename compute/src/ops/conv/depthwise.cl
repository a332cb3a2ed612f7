/* Convolution whose groups have one input channel: each plane of the output is a sum of taps of one
   plane of the input. A work-item computes ROWS outputs, one below the other, so that neighbours
   load neighbours and a line of the input is loaded once for all rows that need it. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif
/* Lines of the input that the rows need. */
#define LINES ((ROWS - 1) * STRIDE_H + (KERNEL_H - 1) * DILATION_H + 1)
#define LINE_STEP (ROWS == 1 ? DILATION_H : 1)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void depthwise(
    GLOBAL const X_TYPE *x, GLOBAL const X_TYPE *weight,
#if BIAS
    GLOBAL const X_TYPE *bias,
#endif
    GLOBAL Y_TYPE *y, u32 groups, u32 maps, u32 planes, u32 in_d, u32 in_h, u32 in_w, u32 out_d,
    u32 out_h, u32 out_w EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0), strips = (out_h + ROWS - 1) / ROWS;
    u32 column = i % out_w, strip = i / out_w % strips, od = i / (out_w * strips) % out_d;
    u32 plane = i / (out_w * strips * out_d);
    if (plane < planes) {
        u32 map = plane % (groups * maps), row = strip * ROWS;
        u32 from = plane / maps * in_d * in_h * in_w;
        float sum[ROWS];
#if BIAS
        float offset = LOAD(bias, map);
#else
        float offset = 0.0f;
#endif
        for (u32 r = 0; r < ROWS; r++) sum[r] = offset;
        for (u32 kd = 0; kd < KERNEL_D; kd++) {
            u32 d = od * STRIDE_D + kd * DILATION_D - PAD_D;
            u32 tap0 = (map * KERNEL_D + kd) * (KERNEL_H * KERNEL_W);
            UNROLL_COLUMNS
            for (u32 kw = 0; kw < KERNEL_W; kw++) {
                u32 w = column * STRIDE_W + kw * DILATION_W - PAD_W;
                UNROLL_LINES
                for (u32 line = 0; line < LINES; line += LINE_STEP) {
                    u32 h = row * STRIDE_H + line - PAD_H;
                    bool inside = d < in_d && h < in_h && w < in_w;
                    float value = inside ? LOAD(x, from + (d * in_h + h) * in_w + w) : 0.0f;
                    UNROLL
                    for (u32 r = 0; r < ROWS; r++) {
                        u32 kh = (line - r * STRIDE_H) / DILATION_H;
                        if (line >= r * STRIDE_H && (line - r * STRIDE_H) % DILATION_H == 0 && kh < KERNEL_H)
                            sum[r] += value * LOAD(weight, tap0 + kh * KERNEL_W + kw);
                    }
                }
            }
        }
        u32 at = ((plane * out_d + od) * out_h + row) * out_w + column;
        for (u32 r = 0; r < ROWS; r++)
            if (row + r < out_h) {
                FINISH(sum[r], at + r * out_w);
            }
    }
}
