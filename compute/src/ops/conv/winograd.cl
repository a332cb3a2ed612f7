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
/* Numbers of a channel's maps, apart by what keeps neighbours out of each other's banks. */
#define U_STEP (TILE_M + 4)
#define U_SIZE (CHANNELS * 16 * U_STEP)
#define V_SIZE (CHANNELS * 16 * TILE_P)
#define U_LOADS (CHANNELS * 16 * TILE_M / ITEMS)
/* Maps of an item, and how many of these are transformed back at a time. */
#define THREAD_M 8
#define THREAD_P 4
#define PASS 2
#define NOWHERE 0xffffffffu

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void winograd(
    GLOBAL const X_TYPE *x, GLOBAL const float *u,
#if BIAS
    GLOBAL const X_TYPE *bias,
#endif
    GLOBAL Y_TYPE *y, u32 groups, u32 channels, u32 maps, u32 images, u32 in_h, u32 in_w, u32 out_h,
    u32 out_w EXTRA_PARAMETERS) {
    LOCAL float shared[U_SIZE + V_SIZE];
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
    u32 line_at[4];
    for (u32 i = 0; i < 4; i++) {
        u32 h = top + i - PAD_H;
        bool inside = image < images && h < in_h;
        line_at[i] = inside ? (slab * channels + channel) * in_plane + h * in_w : NOWHERE;
    }

    /* Which of the 16 numbers it multiplies, of which maps and squares. */
    u32 number = item / 16, row = item / 4 % 4, column = item % 4;
    float sum[THREAD_M][THREAD_P];
    for (u32 i = 0; i < THREAD_M; i++)
        for (u32 k = 0; k < THREAD_P; k++) sum[i][k] = 0.0f;

    for (u32 c0 = 0; c0 < channels; c0 += CHANNELS) {
        float next[U_LOADS], d[4];
        for (u32 i = 0; i < U_LOADS; i++) {
            u32 e = item + i * ITEMS, m = first + e % TILE_M, c = c0 + e / (TILE_M * 16);
            u32 at = ((group * channels + c) * 16 + e / TILE_M % 16) * maps + m;
            next[i] = m < maps && c < channels ? u[at] : 0.0f;
        }
        bool there = c0 + channel < channels;
        for (u32 i = 0; i < 4; i++) {
            u32 at = line_at[i] + c0 * in_plane;
            bool inside = there && line_at[i] != NOWHERE;
            float a = inside && plus < in_w ? LOAD(x, at + plus) : 0.0f;
            float b = inside && minus < in_w ? LOAD(x, at + minus) : 0.0f;
            d[i] = a + sign * b;
        }
        /* The channels before have been read by all. */
        BARRIER();
        for (u32 i = 0; i < U_LOADS; i++) {
            u32 e = item + i * ITEMS;
            shared[e / TILE_M * U_STEP + e % TILE_M] = next[i];
        }
        u32 v = U_SIZE + (channel * 16 + j) * TILE_P + p;
        shared[v] = d[0] - d[2];
        shared[v + 4 * TILE_P] = d[1] + d[2];
        shared[v + 8 * TILE_P] = d[2] - d[1];
        shared[v + 12 * TILE_P] = d[1] - d[3];
        BARRIER();
        /* Once more, and three waves do not fit a Polaris SIMD's registers. */
        _Pragma("unroll 2")
        for (u32 c = 0; c < CHANNELS; c++) {
            float a[THREAD_M], b[THREAD_P];
            u32 left = (c * 16 + number) * U_STEP + row * THREAD_M;
            u32 right = U_SIZE + (c * 16 + number) * TILE_P + column * THREAD_P;
            for (u32 i = 0; i < THREAD_M; i++) a[i] = shared[left + i];
            for (u32 k = 0; k < THREAD_P; k++) b[k] = shared[right + k];
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
