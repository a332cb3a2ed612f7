/* Convolution by 3 × 3 taps with 16 products for 4 outputs instead of 36: Winograd's
   F(2 × 2, 3 × 3), Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015).

   A work-group computes TILE_M maps of TILE_P squares of 2 × 2 outputs, CHANNELS channels at a time.
   Squares of 4 × 4 inputs are transformed on their way to local memory, Bᵀ d B. Then 16 items
   multiply and sum each of the 16 numbers, and outputs are transformed back, Aᵀ m A, on their way
   from one item to another. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif
#define ITEMS 256
#define TILE_M 32
#define TILE_P 16
#define CHANNELS 4
/* Numbers of a channel's maps and squares, apart by what keeps neighbours out of each other's banks, and lets Mesa's
   compiler see that they begin at multiples of 16 B. */
#define U_STEP (TILE_M + 4)
#define V_STEP (TILE_P + 4)
#define U_SIZE (CHANNELS * 16 * U_STEP)
#define V_SIZE (CHANNELS * 16 * V_STEP)
#define U_LOADS (CHANNELS * 16 * TILE_M / (4 * ITEMS))
/* Maps of an item, and how many of these are transformed back at a time. */
#define THREAD_M 8
#define THREAD_P 4
#define PASS 2

DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void winograd(
    GLOBAL const X_TYPE *x, GLOBAL const float *u,
#if BIAS
    GLOBAL const X_TYPE *bias,
#endif
    GLOBAL Y_TYPE *y, u32 groups, u32 channels, u32 maps, u32 images, u32 in_h, u32 in_w, u32 out_h,
    u32 out_w EXTRA_PARAMETERS) {
    LOCAL float shared[U_SIZE] ALIGNED;
    LOCAL float seen[V_SIZE] ALIGNED;
    u32 item = LOCAL_ID(0), group = GROUP_ID(2), first = GROUP_ID(1) * TILE_M;
    /* The square that this item loads and stores. */
    u32 p = item % TILE_P, rows = (out_h + 1) / 2, columns = (out_w + 1) / 2;
    u32 square = GROUP_ID(0) * TILE_P + p, image = square / (rows * columns);
    u32 top = square / columns % rows * 2, side = square % columns * 2;
    u32 slab = image * groups + group, in_plane = in_h * in_w;

    /* Each column of d B is a sum or a difference of two columns of d: these items load them. */
    u32 j = item / TILE_P % 4, channel = item / (TILE_P * 4);
    u32 plus = j == 0 ? 0 : j == 2 ? 2 : 1, minus = j == 2 ? 1 : j == 3 ? 3 : 2;
    float sign = j == 1 ? 1.0f : -1.0f;
    plus += side - PAD_W, minus += side - PAD_W;
    bool plus_in = plus < in_w, minus_in = minus < in_w, line_in[4];
    plus = plus_in ? plus : 0, minus = minus_in ? minus : 0;
    u32 line_at[4];
    for (u32 i = 0; i < 4; i++) {
        u32 h = top + i - PAD_H;
        line_in[i] = image < images && h < in_h;
        line_at[i] = line_in[i] ? (slab * channels + (WHOLE ? channel : 0)) * in_plane + h * in_w : 0;
    }
    /* The weight has zeros up to whole tiles. An item loads four maps of a number at a time. */
    u32 u_step = (maps + TILE_M - 1) / TILE_M * TILE_M;
    u32 u_group = (channels + CHANNELS - 1) / CHANNELS * (CHANNELS * 16) * u_step;
    u32 u_at = group * u_group + item / 8 * u_step + first + item % 8 * 4;

    /* Which of the 16 numbers it multiplies, of which maps and squares. */
    u32 number = item / 16, row = item / 4 % 4, column = item % 4;
    float sum[THREAD_M][THREAD_P];
    for (u32 i = 0; i < THREAD_M; i++)
        for (u32 k = 0; k < THREAD_P; k++) sum[i][k] = 0.0f;

    for (u32 c0 = 0; c0 < channels; c0 += CHANNELS) {
        float next[U_LOADS * 4], d[4];
        for (u32 i = 0; i < U_LOADS; i++) {
            float4 four = load4(u, u_at + (c0 * 16 + i * (ITEMS / 8)) * u_step);
            next[4 * i] = four.x, next[4 * i + 1] = four.y, next[4 * i + 2] = four.z, next[4 * i + 3] = four.w;
        }
        /* Padding reads some element and drops it, which costs no branch. */
        bool there = WHOLE || c0 + channel < channels;
        u32 from = (WHOLE ? c0 : least(c0 + channel, channels - 1)) * in_plane;
        for (u32 i = 0; i < 4; i++) {
            float a = LOAD(x, line_at[i] + from + plus), b = LOAD(x, line_at[i] + from + minus);
            a = there && line_in[i] && plus_in ? a : 0.0f;
            b = there && line_in[i] && minus_in ? b : 0.0f;
            d[i] = a + sign * b;
        }
        /* The channels before have been read by all. */
        BARRIER();
        for (u32 i = 0; i < U_LOADS; i++) {
            u32 to = (item / 8 + i * (ITEMS / 8)) * U_STEP + item % 8 * 4;
            for (u32 k = 0; k < 4; k++) shared[to + k] = next[4 * i + k];
        }
        u32 v = (channel * 16 + j) * V_STEP + p;
        seen[v] = d[0] - d[2];
        seen[v + 4 * V_STEP] = d[1] + d[2];
        seen[v + 8 * V_STEP] = d[2] - d[1];
        seen[v + 12 * V_STEP] = d[1] - d[3];
        BARRIER();
        /* Once more, and three waves do not fit a Polaris SIMD's registers. */
        _Pragma("unroll 2")
        for (u32 c = 0; c < CHANNELS; c++) {
            float a[THREAD_M], b[THREAD_P];
            u32 left = (c * 16 + number) * U_STEP + row * THREAD_M;
            u32 right = (c * 16 + number) * V_STEP + column * THREAD_P;
            for (u32 i = 0; i < THREAD_M; i++) a[i] = shared[left + i];
            for (u32 k = 0; k < THREAD_P; k++) b[k] = seen[right + k];
            for (u32 i = 0; i < THREAD_M; i++)
                for (u32 k = 0; k < THREAD_P; k++) sum[i][k] += a[i] * b[k];
        }
    }

    /* An item transforms one line of a square back, of one map in each pass. */
    u32 map = item / TILE_P % (4 * PASS), line = item / (TILE_P * 4 * PASS);
    u32 h = top + line;
    UNROLL
    for (u32 pass = 0; pass < THREAD_M / PASS; pass++) {
        BARRIER();
        for (u32 i = 0; i < PASS; i++)
            for (u32 k = 0; k < THREAD_P; k++) {
                u32 at = (number * 4 + row) * PASS + i;
                shared[at * TILE_P + column * THREAD_P + k] = sum[pass * PASS + i][k];
            }
        BARRIER();
        float s[4];
        for (u32 k = 0; k < 4; k++) {
            u32 at = (k * 4 * PASS + map) * TILE_P + p, step = 4 * (4 * PASS) * TILE_P;
            float b = shared[at + step], d = shared[at + 2 * step];
            s[k] = line == 0 ? shared[at] + b + d : b - d - shared[at + 3 * step];
        }
        u32 m = first + map / PASS * THREAD_M + pass * PASS + map % PASS;
        if (image < images && m < maps && h < out_h) {
#if BIAS
            float offset = LOAD(bias, group * maps + m);
#else
            float offset = 0.0f;
#endif
            u32 at = ((slab * maps + m) * out_h + h) * out_w + side;
            FINISH(s[0] + s[1] + s[2] + offset, at);
            if (side + 1 < out_w) {
                FINISH(s[1] - s[2] - s[3] + offset, at + 1);
            }
        }
    }
}
