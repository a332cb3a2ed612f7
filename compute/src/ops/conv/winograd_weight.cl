/* The weight of 3 × 3 taps as Winograd's F(2 × 2, 3 × 3) multiplies by it: G g Gᵀ, 16 numbers of
   each channel and map, the maps next to each other, and zeros up to whole tiles. One channel and
   map a work-item. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void winograd_weight(
    GLOBAL const X_TYPE *weight, GLOBAL float *u, u32 groups, u32 channels, u32 maps, u32 whole_channels,
    u32 whole_maps) {
    u32 i = GLOBAL_ID(0), m = i % whole_maps, c = i / whole_maps % whole_channels;
    u32 group = i / (whole_maps * whole_channels);
    if (group < groups) {
        bool known = m < maps && c < channels;
        u32 from = known ? ((group * maps + m) * channels + c) * 9 : 0;
        float rows[4][3];
        for (u32 j = 0; j < 3; j++) {
            float a = known ? LOAD(weight, from + j) : 0.0f;
            float b = known ? LOAD(weight, from + 3 + j) : 0.0f;
            float d = known ? LOAD(weight, from + 6 + j) : 0.0f;
            rows[0][j] = a;
            rows[1][j] = 0.5f * (a + b + d);
            rows[2][j] = 0.5f * (a - b + d);
            rows[3][j] = d;
        }
        u32 to = (group * whole_channels + c) * 16 * whole_maps + m;
        for (u32 r = 0; r < 4; r++) {
            float a = rows[r][0], b = rows[r][1], d = rows[r][2];
            u[to + (4 * r + 0) * whole_maps] = a;
            u[to + (4 * r + 1) * whole_maps] = 0.5f * (a + b + d);
            u[to + (4 * r + 2) * whole_maps] = 0.5f * (a - b + d);
            u[to + (4 * r + 3) * whole_maps] = d;
        }
    }
}
