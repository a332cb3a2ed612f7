/* The first largest element of each window and its index in the input, one a work-item. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void max_pool_indices(
    GLOBAL const X_TYPE *x, GLOBAL X_TYPE *y, GLOBAL i64 *indices, u32 planes, u32 in_d, u32 in_h,
    u32 in_w, u32 out_d, u32 out_h, u32 out_w) {
    u32 i = GLOBAL_ID(0);
    u32 ow = i % out_w, oh = i / out_w % out_h, od = i / (out_w * out_h) % out_d;
    u32 plane = i / (out_w * out_h * out_d), size = in_d * in_h * in_w;
    if (plane < planes) {
        u32 index = 0;
        bool seen = false;
        /* A constant: of loads alone, LLVM 19 would keep the maximum as a half, which it cannot do
           for gfx701. */
        REGISTER top = 0;
        for (u32 kd = 0; kd < KERNEL_D; kd++)
            for (u32 kh = 0; kh < KERNEL_H; kh++)
                for (u32 kw = 0; kw < KERNEL_W; kw++) {
                    u32 d = od * STRIDE_D + kd * DILATION_D - PAD_D;
                    u32 h = oh * STRIDE_H + kh * DILATION_H - PAD_H;
                    u32 w = ow * STRIDE_W + kw * DILATION_W - PAD_W;
                    if (d < in_d && h < in_h && w < in_w) {
                        u32 at = plane * size + (d * in_h + h) * in_w + w;
                        REGISTER value = LOAD(x, at);
                        /* NaN is larger than all. */
                        if (!seen || value > top || (value != value && top == top)) {
                            top = value, seen = true;
                            index = COLUMN_MAJOR ? plane * size + d + in_d * (h + in_h * w) : at;
                        }
                    }
                }
        /* A window without elements takes the first element of x. */
        if (!seen) top = LOAD(x, 0);
        STORE(top, y, i);
        indices[i] = (i64)index;
    }
}
