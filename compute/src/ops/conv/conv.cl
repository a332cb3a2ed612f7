/* Convolution as the product of the weight, [maps, channels · taps], with the unfolded input,
   which is unfolded only in local memory. A work-group computes TILE_M maps at TILE_N places, by
   SLICE taps of CHANNELS channels at a time: what an item loads is then at the same taps in every
   tile, so that windows are taken apart outside of the loop over channels.

   Of a transposed convolution the taps that reach an output depend on its place modulo the stride,
   its phase: they are every STEP-th from a first one on. The outputs of a phase are a convolution
   with these taps, and a group computes outputs of one phase.

   Numbers are float, or of bytes i32, and i16 in local memory: products of these take one step, of
   which others take four. ELEMENT(i) and WEIGHT(i, map) are one of the input's and one
   of a map's, with what ZEROS stand for 0 subtracted.

   With SPLITS, groups sum a share of the channels each, and y has a copy for each share. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif
#define ITEMS (GROUP_X * GROUP_Y)
#define TILE_M (GROUP_Y * THREAD_M)
#define TILE_N (GROUP_X * THREAD_N)
#define TILE_K (SLICE * CHANNELS)
#define WINDOW (KERNEL_D * KERNEL_H * KERNEL_W)
#define LEFT_LOADS ((TILE_M * TILE_K + ITEMS - 1) / ITEMS)
#define RIGHT_LOADS ((TILE_N * TILE_K + ITEMS - 1) / ITEMS)
/* One more than TILE_M, or the columns of the transposed weight would share banks. */
#define LEFT_STEP (TILE_M + 1)
#define NOWHERE 0xffffffffu
/* Outside of any input, whichever tap is added. */
#define FAR_OUTSIDE 0x80000000u

#if TRANSPOSED
#define TAPS_D ((KERNEL_D + STEP_D - 1) / STEP_D)
#define TAPS_H ((KERNEL_H + STEP_H - 1) / STEP_H)
#define TAPS_W ((KERNEL_W + STEP_W - 1) / STEP_W)
#define FROM(place, stride, pad) ((place) + pad)
#define INPUT(from, tap, stride, dilation) (((from) - (tap) * dilation) / stride)
#define WEIGHT_AT(m, c) ((group * channels + (c)) * maps + (m))
#define WEIGHT_STEP (maps * WINDOW)
#define SPREAD(stride) stride

/* The first tap that reaches places of a phase, padding added; `taps` if none does. */
DEVICE u32 first_tap(u32 phase, u32 stride, u32 dilation, u32 step, u32 taps) {
    for (u32 k = 0; k < step; k++)
        if ((phase + k * dilation * (stride - 1)) % stride == 0) return k;
    return taps;
}
#else
#define TAPS_D KERNEL_D
#define TAPS_H KERNEL_H
#define TAPS_W KERNEL_W
#define STEP_D 1
#define STEP_H 1
#define STEP_W 1
#define FROM(place, stride, pad) ((place) * stride - pad)
#define INPUT(from, tap, stride, dilation) ((from) + (tap) * dilation)
#define WEIGHT_AT(m, c) ((group * maps + (m)) * channels + (c))
#define WEIGHT_STEP WINDOW
#define SPREAD(stride) 1
#endif
#define TAPS (TAPS_D * TAPS_H * TAPS_W)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void conv(
    GLOBAL const X_TYPE *x, GLOBAL const W_TYPE *weight, ZEROS
#if BIAS
    GLOBAL const X_TYPE *bias,
#endif
    GLOBAL Y_TYPE *y, u32 groups, u32 channels, u32 share, u32 maps, u32 images, u32 in_d, u32 in_h,
    u32 in_w, u32 out_d, u32 out_h, u32 out_w EXTRA_PARAMETERS) {
    LOCAL TILE left[TILE_K * LEFT_STEP];
    LOCAL TILE right[TILE_K * TILE_N];
    /* Of each place: its image in the input, where its window begins (modulo 2^32: what is before
       the input is far behind it), and itself in the output. */
    LOCAL u32 image_at[TILE_N];
    LOCAL u32 from_d[TILE_N];
    LOCAL u32 from_h[TILE_N];
    LOCAL u32 from_w[TILE_N];
    LOCAL u32 out_at[TILE_N];
    u32 column = LOCAL_ID(0), row = LOCAL_ID(1), item = row * GROUP_X + column;
    u32 first = GROUP_ID(1) * TILE_M, group = GROUP_ID(2) % groups;
    u32 part = GROUP_ID(2) / groups % SPLITS;
    u32 in_plane = in_d * in_h * in_w, out_plane = out_d * out_h * out_w;
    u32 first_d = 0, first_h = 0, first_w = 0, phase_d = 0, phase_h = 0, phase_w = 0;
#if TRANSPOSED
    u32 phase = GROUP_ID(2) / groups / SPLITS;
    phase_d = phase / (STRIDE_H * STRIDE_W);
    phase_h = phase / STRIDE_W % STRIDE_H;
    phase_w = phase % STRIDE_W;
    first_d = first_tap(phase_d + PAD_D, STRIDE_D, DILATION_D, STEP_D, KERNEL_D);
    first_h = first_tap(phase_h + PAD_H, STRIDE_H, DILATION_H, STEP_H, KERNEL_H);
    first_w = first_tap(phase_w + PAD_W, STRIDE_W, DILATION_W, STEP_W, KERNEL_W);
#endif

    u32 rows = (out_h + SPREAD(STRIDE_H) - 1) / SPREAD(STRIDE_H);
    u32 columns = (out_w + SPREAD(STRIDE_W) - 1) / SPREAD(STRIDE_W);
    u32 places = (out_d + SPREAD(STRIDE_D) - 1) / SPREAD(STRIDE_D) * rows * columns;
    for (u32 p = item; p < TILE_N; p += ITEMS) {
        u32 place = GROUP_ID(0) * TILE_N + p, image = place / places, at = place % places;
        u32 slab = image * groups + group;
        u32 d = at / (rows * columns) * SPREAD(STRIDE_D) + phase_d;
        u32 h = at / columns % rows * SPREAD(STRIDE_H) + phase_h;
        u32 w = at % columns * SPREAD(STRIDE_W) + phase_w;
        bool inside = image < images && d < out_d && h < out_h && w < out_w;
        image_at[p] = slab * channels * in_plane;
        out_at[p] = inside ? slab * maps * out_plane + (d * out_h + h) * out_w + w : NOWHERE;
        from_d[p] = inside ? FROM(d, STRIDE_D, PAD_D) : FAR_OUTSIDE;
        from_h[p] = FROM(h, STRIDE_H, PAD_H);
        from_w[p] = FROM(w, STRIDE_W, PAD_W);
    }
    BARRIER();

    NUMBER sum[THREAD_M][THREAD_N];
    for (u32 i = 0; i < THREAD_M; i++)
        for (u32 j = 0; j < THREAD_N; j++) sum[i][j] = 0;

    for (u32 tap0 = 0; tap0 < TAPS; tap0 += SLICE) {
        u32 left_at[LEFT_LOADS], right_at[RIGHT_LOADS];
        for (u32 i = 0; i < LEFT_LOADS; i++) {
            u32 e = item + i * ITEMS, m = first + e / TILE_K, k = e % TILE_K;
            u32 tap = tap0 + k % SLICE;
            u32 kd = first_d + tap / (TAPS_H * TAPS_W) * STEP_D;
            u32 kh = first_h + tap / TAPS_W % TAPS_H * STEP_H;
            u32 kw = first_w + tap % TAPS_W * STEP_W;
            bool inside = e < TILE_M * TILE_K && m < maps && tap < TAPS && kd < KERNEL_D
                && kh < KERNEL_H && kw < KERNEL_W;
            u32 at = WEIGHT_AT(m, k / SLICE) * WINDOW + (kd * KERNEL_H + kh) * KERNEL_W + kw;
            left_at[i] = inside ? at : NOWHERE;
        }
        for (u32 i = 0; i < RIGHT_LOADS; i++) {
            u32 e = item + i * ITEMS, p = e % TILE_N, k = e / TILE_N, tap = tap0 + k % SLICE;
            u32 kd = first_d + tap / (TAPS_H * TAPS_W) * STEP_D;
            u32 kh = first_h + tap / TAPS_W % TAPS_H * STEP_H;
            u32 kw = first_w + tap % TAPS_W * STEP_W;
            u32 d = INPUT(from_d[p], kd, STRIDE_D, DILATION_D);
            u32 h = INPUT(from_h[p], kh, STRIDE_H, DILATION_H);
            u32 w = INPUT(from_w[p], kw, STRIDE_W, DILATION_W);
            bool inside = e < TILE_N * TILE_K && tap < TAPS && kd < KERNEL_D && kh < KERNEL_H
                && kw < KERNEL_W && d < in_d && h < in_h && w < in_w;
            u32 at = image_at[p] + ((k / SLICE * in_d + d) * in_h + h) * in_w + w;
            right_at[i] = inside ? at : NOWHERE;
        }
        u32 end = (part + 1) * share < channels ? (part + 1) * share : channels;
        for (u32 c = part * share; c < end; c += CHANNELS) {
            TILE next_left[LEFT_LOADS], next_right[RIGHT_LOADS];
            for (u32 i = 0; i < LEFT_LOADS; i++) {
                u32 k = (item + i * ITEMS) % TILE_K, m = first + (item + i * ITEMS) / TILE_K;
                /* Compilers warn of a constant on the right of `&&`. */
                bool inside = (WHOLE || c + k / SLICE < end) && left_at[i] != NOWHERE;
                next_left[i] = inside ? WEIGHT(left_at[i] + c * WEIGHT_STEP, group * maps + m) : 0;
            }
            for (u32 i = 0; i < RIGHT_LOADS; i++) {
                u32 k = (item + i * ITEMS) / TILE_N;
                bool inside = (WHOLE || c + k / SLICE < end) && right_at[i] != NOWHERE;
                next_right[i] = inside ? ELEMENT(right_at[i] + c * in_plane) : 0;
            }
            /* The tile before has been read by all. */
            BARRIER();
            for (u32 i = 0; i < LEFT_LOADS; i++) {
                u32 e = item + i * ITEMS;
                if (e < TILE_M * TILE_K) left[e % TILE_K * LEFT_STEP + e / TILE_K] = next_left[i];
            }
            for (u32 i = 0; i < RIGHT_LOADS; i++) {
                u32 e = item + i * ITEMS;
                if (e < TILE_N * TILE_K) right[e] = next_right[i];
            }
            BARRIER();
            for (u32 k = 0; k < TILE_K; k++) {
                NUMBER a[THREAD_M], b[THREAD_N];
                for (u32 i = 0; i < THREAD_M; i++) a[i] = left[k * LEFT_STEP + row * THREAD_M + i];
                for (u32 j = 0; j < THREAD_N; j++) b[j] = right[k * TILE_N + column + j * GROUP_X];
                for (u32 i = 0; i < THREAD_M; i++)
                    for (u32 j = 0; j < THREAD_N; j++) sum[i][j] += a[i] * b[j];
            }
        }
    }

    u32 copy = part * images * groups * maps * out_plane;
    for (u32 i = 0; i < THREAD_M; i++) {
        u32 m = first + row * THREAD_M + i;
        if (m < maps) {
#if BIAS
            NUMBER offset = LOAD(bias, group * maps + m);
#else
            NUMBER offset = 0;
#endif
            for (u32 j = 0; j < THREAD_N; j++) {
                u32 at = out_at[column + j * GROUP_X];
                if (at != NOWHERE) {
                    FINISH(sum[i][j] + offset, copy + at + m * out_plane);
                }
            }
        }
    }
}
