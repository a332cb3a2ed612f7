/* A product with a weight of few square blocks: a work-group computes ROWS rows of a column of blocks,
   block after block; a work-item EACH_ROW rows of every 16th column. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif
#define ITEMS (GROUP_X * GROUP_Y)
#define EACH_ROW (ROWS / GROUP_Y)
#define EACH_COLUMN (BLOCK / GROUP_X)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void sparse_blocks(GLOBAL const float *a, GLOBAL const i32 *starts, GLOBAL const i32 *rows,
                   GLOBAL const float *values, GLOBAL Y_TYPE *y, u32 m, u32 n, u32 k,
                   u32 count EXTRA_PARAMETERS) {
    /* More than ROWS, so that what is stored along k goes to other banks. */
    LOCAL float left[BLOCK][ROWS + 4] ALIGNED;
    LOCAL float right[BLOCK][BLOCK];
    u32 x = LOCAL_ID(0), own = LOCAL_ID(1) * EACH_ROW, item = LOCAL_ID(1) * GROUP_X + x;
    u32 column = GROUP_ID(0), first = GROUP_ID(1) * ROWS;
    u32 end = (u32)starts[column + 1] < count ? (u32)starts[column + 1] : count;
    float sums[EACH_ROW][EACH_COLUMN];
    for (u32 i = 0; i < EACH_ROW; i++)
        for (u32 j = 0; j < EACH_COLUMN; j++) sums[i][j] = 0.0f;
    for (u32 e = (u32)starts[column]; e < end; e++) {
        u32 from = ((u32)rows[e] < k / BLOCK ? (u32)rows[e] : k / BLOCK - 1) * BLOCK;
        for (u32 t = item; t < ROWS * BLOCK; t += ITEMS) {
            u32 row = first + t / BLOCK;
            left[t % BLOCK][t / BLOCK] = row < m ? a[row * k + from + t % BLOCK] : 0.0f;
        }
        for (u32 t = item; t < BLOCK * BLOCK; t += ITEMS) right[t / BLOCK][t % BLOCK] = values[e * BLOCK * BLOCK + t];
        BARRIER();
        for (u32 d = 0; d < BLOCK; d++) {
            float l[EACH_ROW];
            for (u32 i = 0; i < EACH_ROW; i++) l[i] = left[d][own + i];
            for (u32 j = 0; j < EACH_COLUMN; j++) {
                float r = right[d][x + GROUP_X * j];
                for (u32 i = 0; i < EACH_ROW; i++) sums[i][j] += l[i] * r;
            }
        }
        BARRIER();
    }
    for (u32 i = 0; i < EACH_ROW; i++) {
        for (u32 j = 0; j < EACH_COLUMN; j++) {
            u32 row = first + own + i;
            if (row < m) {
                FINISH(sums[i][j], row * n + column * BLOCK + x + GROUP_X * j);
            }
        }
    }
}
