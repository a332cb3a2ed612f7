/* Pooling over windows, one output a work-item.
   START, COMBINE and RESULT make it a maximum, a sum or a mean. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void pool(
    GLOBAL const X_TYPE *x, GLOBAL Y_TYPE *y, u32 planes, u32 in_d, u32 in_h, u32 in_w, u32 out_d,
    u32 out_h, u32 out_w EXTRA_PARAMETERS) {
    u32 i = GLOBAL_ID(0);
    u32 ow = i % out_w, oh = i / out_w % out_h, od = i / (out_w * out_h) % out_d;
    u32 plane = i / (out_w * out_h * out_d);
    if (plane < planes) {
        u32 from = plane * in_d * in_h * in_w, count = 0;
        REGISTER value = START;
        for (u32 kd = 0; kd < KERNEL_D; kd++)
            for (u32 kh = 0; kh < KERNEL_H; kh++)
                for (u32 kw = 0; kw < KERNEL_W; kw++) {
                    u32 d = od * STRIDE_D + kd * DILATION_D;
                    u32 h = oh * STRIDE_H + kh * DILATION_H;
                    u32 w = ow * STRIDE_W + kw * DILATION_W;
                    /* What of a window hangs over the padding does not count either. */
                    bool padded = d < PAD_D + in_d + END_D && h < PAD_H + in_h + END_H
                        && w < PAD_W + in_w + END_W;
                    d -= PAD_D, h -= PAD_H, w -= PAD_W;
                    bool inside = d < in_d && h < in_h && w < in_w;
                    if (inside) {
                        REGISTER next = LOAD(x, from + (d * in_h + h) * in_w + w);
                        value = COMBINE(value, next);
                    }
                    count += COUNT_PADDING ? padded : inside;
                }
        count = count == 0 ? 1 : count;
        FINISH(RESULT(value, count), i);
    }
}
