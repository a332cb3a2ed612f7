/* The weight of 3 × 3 taps as Winograd's F(2 × 2, 3 × 3) multiplies by it: G g Gᵀ, 16 numbers of
   each channel and map, the maps next to each other. One channel and map a work-item. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void winograd_weight(
    GLOBAL const X_TYPE *weight, GLOBAL float *u, u32 groups, u32 channels, u32 maps) {
    u32 i = GLOBAL_ID(0), m = i % maps, c = i / maps % channels, group = i / (maps * channels);
    if (group < groups) {
        u32 from = ((group * maps + m) * channels + c) * 9;
        float rows[4][3];
        for (u32 j = 0; j < 3; j++) {
            float a = LOAD(weight, from + j), b = LOAD(weight, from + 3 + j);
            float d = LOAD(weight, from + 6 + j);
            rows[0][j] = a;
            rows[1][j] = 0.5f * (a + b + d);
            rows[2][j] = 0.5f * (a - b + d);
            rows[3][j] = d;
        }
        u32 to = (group * channels + c) * 16 * maps + m;
        for (u32 r = 0; r < 4; r++) {
            float a = rows[r][0], b = rows[r][1], d = rows[r][2];
            u[to + (4 * r + 0) * maps] = a;
            u[to + (4 * r + 1) * maps] = 0.5f * (a + b + d);
            u[to + (4 * r + 2) * maps] = 0.5f * (a - b + d);
            u[to + (4 * r + 3) * maps] = d;
        }
    }
}
