/* Convolution as the product of the weight, [maps, channels · taps], with the unfolded input,
   which is unfolded only in local memory. A work-group computes TILE_M maps at TILE_N places, by
   SLICE taps of CHANNELS channels at a time: what an item loads is then at the same taps in every
   tile, so that windows are taken apart outside of the loop over channels. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif
#define ITEMS (GROUP_X * GROUP_Y)
#define TILE_M (GROUP_Y * THREAD_M)
#define TILE_N (GROUP_X * THREAD_N)
#define TILE_K (SLICE * CHANNELS)
#define TAPS (KERNEL_D * KERNEL_H * KERNEL_W)
#define LEFT_LOADS ((TILE_M * TILE_K + ITEMS - 1) / ITEMS)
#define RIGHT_LOADS ((TILE_N * TILE_K + ITEMS - 1) / ITEMS)
/* One more than TILE_M, or the columns of the transposed weight would share banks. */
#define LEFT_STEP (TILE_M + 1)
#define NOWHERE 0xffffffffu
/* Before any input, whichever tap is added. */
#define FAR_BEFORE 0x80000000u

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void conv(
    GLOBAL const X_TYPE *x, GLOBAL const X_TYPE *weight,
#if BIAS
    GLOBAL const X_TYPE *bias,
#endif
    GLOBAL Y_TYPE *y, u32 channels, u32 maps, u32 places, u32 in_d, u32 in_h, u32 in_w, u32 out_d,
    u32 out_h, u32 out_w EXTRA_PARAMETERS) {
    LOCAL float left[TILE_K * LEFT_STEP];
    LOCAL float right[TILE_K * TILE_N];
    /* Of each place: its image in the input, where its window begins (modulo 2^32: padding is far
       behind the input), and itself in the output. */
    LOCAL u32 image_at[TILE_N];
    LOCAL u32 from_d[TILE_N];
    LOCAL u32 from_h[TILE_N];
    LOCAL u32 from_w[TILE_N];
    LOCAL u32 out_at[TILE_N];
    u32 column = (u32)LOCAL_ID(0), row = (u32)LOCAL_ID(1), item = row * GROUP_X + column;
    u32 group = (u32)GROUP_ID(2), first = (u32)GROUP_ID(1) * TILE_M;
    u32 in_plane = in_d * in_h * in_w, out_plane = out_d * out_h * out_w;

    for (u32 p = item; p < TILE_N; p += ITEMS) {
        u32 place = (u32)GROUP_ID(0) * TILE_N + p;
        u32 image = place / out_plane, at = place % out_plane;
        u32 slab = (u32)GROUPS(2) * image + group;
        image_at[p] = slab * channels * in_plane;
        out_at[p] = place < places ? slab * maps * out_plane + at : NOWHERE;
        from_d[p] = place < places ? at / (out_h * out_w) * STRIDE_D - PAD_D : FAR_BEFORE;
        from_h[p] = at / out_w % out_h * STRIDE_H - PAD_H;
        from_w[p] = at % out_w * STRIDE_W - PAD_W;
    }
    BARRIER();

    float sum[THREAD_M][THREAD_N];
    for (u32 i = 0; i < THREAD_M; i++)
        for (u32 j = 0; j < THREAD_N; j++) sum[i][j] = 0.0f;

    for (u32 tap0 = 0; tap0 < TAPS; tap0 += SLICE) {
        u32 left_at[LEFT_LOADS], right_at[RIGHT_LOADS];
        for (u32 i = 0; i < LEFT_LOADS; i++) {
            u32 e = item + i * ITEMS, m = first + e / TILE_K, k = e % TILE_K;
            u32 tap = tap0 + k % SLICE;
            bool inside = e < TILE_M * TILE_K && m < maps && tap < TAPS;
            left_at[i] = inside ? ((group * maps + m) * channels + k / SLICE) * TAPS + tap : NOWHERE;
        }
        for (u32 i = 0; i < RIGHT_LOADS; i++) {
            u32 e = item + i * ITEMS, p = e % TILE_N, k = e / TILE_N, tap = tap0 + k % SLICE;
            bool inside = e < TILE_N * TILE_K && tap < TAPS;
            u32 d = from_d[p] + tap / (KERNEL_H * KERNEL_W) * DILATION_D;
            u32 h = from_h[p] + tap / KERNEL_W % KERNEL_H * DILATION_H;
            u32 w = from_w[p] + tap % KERNEL_W * DILATION_W;
            inside = inside && d < in_d && h < in_h && w < in_w;
            u32 at = image_at[p] + ((k / SLICE * in_d + d) * in_h + h) * in_w + w;
            right_at[i] = inside ? at : NOWHERE;
        }
        for (u32 c = 0; c < channels; c += CHANNELS) {
            float next_left[LEFT_LOADS], next_right[RIGHT_LOADS];
            for (u32 i = 0; i < LEFT_LOADS; i++) {
                u32 k = (item + i * ITEMS) % TILE_K;
                bool inside = left_at[i] != NOWHERE && (WHOLE || c + k / SLICE < channels);
                next_left[i] = inside ? LOAD(weight, left_at[i] + c * TAPS) : 0.0f;
            }
            for (u32 i = 0; i < RIGHT_LOADS; i++) {
                u32 k = (item + i * ITEMS) / TILE_N;
                bool inside = right_at[i] != NOWHERE && (WHOLE || c + k / SLICE < channels);
                next_right[i] = inside ? LOAD(x, right_at[i] + c * in_plane) : 0.0f;
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
                float a[THREAD_M], b[THREAD_N];
                for (u32 i = 0; i < THREAD_M; i++) a[i] = left[k * LEFT_STEP + row * THREAD_M + i];
                for (u32 j = 0; j < THREAD_N; j++) b[j] = right[k * TILE_N + column + j * GROUP_X];
                for (u32 i = 0; i < THREAD_M; i++)
                    for (u32 j = 0; j < THREAD_N; j++) sum[i][j] += a[i] * b[j];
            }
        }
    }

    for (u32 i = 0; i < THREAD_M; i++) {
        u32 m = first + row * THREAD_M + i;
        if (m < maps) {
#if BIAS
            float offset = LOAD(bias, group * maps + m);
#else
            float offset = 0.0f;
#endif
            for (u32 j = 0; j < THREAD_N; j++) {
                u32 at = out_at[column + j * GROUP_X];
                if (at != NOWHERE) {
                    FINISH(sum[i][j] + offset, at + m * out_plane);
                }
            }
        }
    }
}
