// The self-test's operations in the portable language, one element (or one group of 64) per work-item.

KERNEL GROUP_SIZE(64, 1, 1) void test_fma(GLOBAL const float *a, GLOBAL const float *b, GLOBAL const float *c,
                       GLOBAL float *out) {
    u32 i = GLOBAL_ID(0);
    out[i] = fma(a[i], b[i], c[i]);
}

KERNEL GROUP_SIZE(64, 1, 1) void test_exp(GLOBAL const float *a, GLOBAL float *out) {
    u32 i = GLOBAL_ID(0);
    out[i] = exp(a[i]);
}

KERNEL GROUP_SIZE(64, 1, 1) void test_divide_sqrt(GLOBAL const float *b, GLOBAL const float *c,
                               GLOBAL float *out) {
    u32 i = GLOBAL_ID(0);
    out[i] = sqrt(b[i]) / (1.0f + c[i] * c[i]);
}

KERNEL GROUP_SIZE(64, 1, 1) void test_integer(GLOBAL const u32 *x, GLOBAL const u32 *y, GLOBAL u32 *out) {
    u32 i = GLOBAL_ID(0);
    out[i] = x[i] * y[i] + ((x[i] >> 7) ^ y[i]);
}

KERNEL GROUP_SIZE(64, 1, 1) void
test_group_sum(GLOBAL const float *n, GLOBAL float *out) {
    LOCAL float part[64];
    u32 lane = LOCAL_ID(0);
    part[lane] = n[GLOBAL_ID(0)];
    for (u32 stride = 32; stride > 0; stride /= 2) {
        BARRIER();
        if (lane < stride) {
            part[lane] += part[lane + stride];
        }
    }
    if (lane == 0) {
        out[GROUP_ID(0)] = part[0];
    }
}
