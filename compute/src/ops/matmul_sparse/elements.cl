/* A product with a weight of few elements, by columns: of a work-group, each column's elements are
   shared by GROUP_X work-items, for ROWS rows of the left side at a time. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void sparse_elements(GLOBAL const float *a, GLOBAL const i32 *starts, GLOBAL const i32 *rows,
                     GLOBAL const float *values, GLOBAL Y_TYPE *y, u32 m, u32 n, u32 k,
                     u32 count EXTRA_PARAMETERS) {
    LOCAL float shared[ROWS][GROUP_Y][GROUP_X];
    u32 lane = LOCAL_ID(0), own = LOCAL_ID(1), first = GROUP_ID(1) * ROWS;
    u32 column = GROUP_ID(0) * GROUP_Y + own;
    u32 known = column < n ? column : n - 1;
    u32 end = (u32)starts[known + 1] < count ? (u32)starts[known + 1] : count;
    float sums[ROWS];
    for (u32 i = 0; i < ROWS; i++) sums[i] = 0.0f;
    for (u32 e = (u32)starts[known]; e < end; e += GROUP_X) {
        if (e + lane < end) {
            float value = values[e + lane];
            u32 depth = (u32)rows[e + lane] < k ? (u32)rows[e + lane] : k - 1;
            for (u32 i = 0; i < ROWS; i++) {
                u32 row = first + i < m ? first + i : m - 1;
                sums[i] += a[row * k + depth] * value;
            }
        }
    }
    for (u32 i = 0; i < ROWS; i++) shared[i][own][lane] = sums[i];
    BARRIER();
    for (u32 i = lane; i < ROWS; i += GROUP_X) {
        float sum = 0.0f;
        for (u32 l = 0; l < GROUP_X; l++) sum += shared[i][own][l];
        if (first + i < m && column < n) {
            FINISH(sum, (first + i) * n + column);
        }
    }
}
