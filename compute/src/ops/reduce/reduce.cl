/* Reductions: of neighbours by a work-group, and of elements `inner` apart by a work-item. START,
   JOIN, EACH and RESULT define the kind; with SHIFTED the largest element is found first. */
DEVICE float joined(float a, float b) { return JOIN(a, b); }
DEVICE float larger(float a, float b) { return b > a || b != b ? b : a; }

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void reduce_rows(GLOBAL const X_TYPE *x, GLOBAL Y_TYPE *y, u32 count,
                                                              u32 size, u32 inner) {
    LOCAL float part[GROUP_X];
    u32 row = GROUP_ID(0);
    u32 lane = LOCAL_ID(0);
    float most = 0.0f;
#if SHIFTED
    float seen = -INFINITY;
    for (u32 i = lane; i < size; i += GROUP_X) {
        seen = larger(seen, LOAD(row * size + i));
    }
    part[lane] = seen;
    for (u32 stride = GROUP_X / 2; stride > 0; stride /= 2) {
        BARRIER();
        if (lane < stride) {
            part[lane] = larger(part[lane], part[lane + stride]);
        }
    }
    BARRIER();
    most = fabs(part[0]) == INFINITY ? 0.0f : part[0];
    BARRIER();
#endif
    float sum = START;
    for (u32 i = lane; i < size; i += GROUP_X) {
        float v = LOAD(row * size + i);
        sum = joined(sum, EACH(v));
    }
    part[lane] = sum;
    for (u32 stride = GROUP_X / 2; stride > 0; stride /= 2) {
        BARRIER();
        if (lane < stride) {
            part[lane] = joined(part[lane], part[lane + stride]);
        }
    }
    if (lane == 0) {
        sum = part[0];
        STORE((RESULT(sum)), row);
    }
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void reduce_columns(GLOBAL const X_TYPE *x, GLOBAL Y_TYPE *y, u32 count,
                                                                 u32 size, u32 inner) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 first = i / inner * size * inner + i % inner;
        float most = 0.0f;
#if SHIFTED
        most = -INFINITY;
        for (u32 k = 0; k < size; ++k) {
            most = larger(most, LOAD(first + k * inner));
        }
        most = fabs(most) == INFINITY ? 0.0f : most;
#endif
        float sum = START;
        for (u32 k = 0; k < size; ++k) {
            float v = LOAD(first + k * inner);
            sum = joined(sum, EACH(v));
        }
        STORE((RESULT(sum)), i);
    }
}
