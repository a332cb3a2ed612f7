// Kernels of the laws about programs, in the portable language.

#ifndef CONSTANT
#define CONSTANT 1u
#endif

KERNEL void add(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *out) {
    u32 i = GLOBAL_ID(0);
    out[i] = a[i] + b[i];
}

KERNEL void quotients(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *out) {
    u32 i = GLOBAL_ID(0);
    out[i] = divide(a[i], b[i]);
}

KERNEL void twice_and_one(GLOBAL u32 *values) {
    u32 i = GLOBAL_ID(0);
    values[i] = 2u * values[i] + 1u;
}

KERNEL void constant_of_options(GLOBAL u32 *out) { out[GLOBAL_ID(0)] = CONSTANT; }

KERNEL GROUP_SIZE(64, 1, 1) void all_arguments(GLOBAL u32 *out, u32 u, i32 i, u64 l, float f) {
    LOCAL u32 scratch[64];
    u32 lane = LOCAL_ID(0);
    scratch[lane] = lane;
    BARRIER();
    if (lane == 0) {
        u32 sum = 0;
        for (u32 at = 0; at < 64; ++at) {
            sum += scratch[at];
        }
        out[0] = u;
        out[1] = (u32)i;
        out[2] = (u32)l;
        out[3] = (u32)(l >> 32);
        out[4] = BITS_F32(f);
        out[5] = sum;
    }
}

KERNEL GROUP_SIZE(2, 1, 1) void groups_of_two(GLOBAL u32 *out) {
    out[GLOBAL_ID(0)] += 2 * GROUP_ID(0) + LOCAL_ID(0);
}

// The place of each work-item: its group and its place in the group, in three dimensions.
KERNEL void places(GLOBAL u32 *out) {
    u32 width = GROUPS(0) * 4, height = GROUPS(1) * 2;
    u32 at = (GLOBAL_ID(2) * height + GLOBAL_ID(1)) * width + GLOBAL_ID(0);
    u32 group = (GROUP_ID(2) * GROUPS(1) + GROUP_ID(1)) * GROUPS(0) + GROUP_ID(0);
    u32 lane = (LOCAL_ID(2) * 2 + LOCAL_ID(1)) * 4 + LOCAL_ID(0);
    out[at] = group << 16 | lane;
}
