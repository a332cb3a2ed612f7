/* A product with few rows, VECTORS of them: each element of the right operand is read once and used
   for every row, RIGHT_WIDTH elements along the sum at a time. A work-group has EACH times COLUMNS
   columns; LANES work-items share the sums of EACH of them, for which they load the rows once. */
#if RIGHT_ALONG
#define COLUMNS GROUP_Y
#define LANES GROUP_X
#define COLUMN LOCAL_ID(1)
#define LANE LOCAL_ID(0)
#else
#define COLUMNS GROUP_X
#define LANES GROUP_Y
#define COLUMN LOCAL_ID(0)
#define LANE LOCAL_ID(1)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void gemv(OPERANDS GLOBAL Y_TYPE *y, u32 m, u32 n, u32 k, u32 row_step, u32 column_step, u32 batches,
          u32 part EXTRA_PARAMETERS) {
    LOCAL SUM shared[VECTORS][LANES][COLUMNS];
    u32 first_column = GROUP_ID(0) * (COLUMNS * EACH) + COLUMN;
    u32 z = GROUP_ID(2);
    u32 left_start = LEFT_BATCH(z % batches), right_start = RIGHT_BATCH(z % batches);
    u32 first = z / batches * part;
    u32 end = least(k, first + part);
    SUM sums[EACH][VECTORS];
    for (u32 e = 0; e < EACH; e++)
        for (u32 v = 0; v < VECTORS; v++) sums[e][v] = 0;
    for (u32 d = first + LANE * RIGHT_WIDTH; d < end; d += LANES * RIGHT_WIDTH) {
        TILE l[VECTORS * RIGHT_WIDTH];
        for (u32 v = 0; v < VECTORS; v++) {
            for (u32 w = 0; w < RIGHT_WIDTH; w += LEFT_WIDTH) {
                LEFT_VECTOR(l, v * RIGHT_WIDTH + w, left_start + place(LEFT_ALONG, m, k, v, d + w), v);
            }
        }
        for (u32 e = 0; e < EACH; e++) {
            u32 side = least(first_column + e * COLUMNS, n - 1);
            TILE r[RIGHT_WIDTH];
            RIGHT_VECTOR(r, 0, right_start + place(RIGHT_ALONG, n, k, side, d), side);
            for (u32 w = 0; w < RIGHT_WIDTH; w++)
                for (u32 v = 0; v < VECTORS; v++) sums[e][v] += (SUM)l[v * RIGHT_WIDTH + w] * r[w];
        }
    }
    for (u32 e = 0; e < EACH; e++) {
        u32 column = first_column + e * COLUMNS;
        for (u32 v = 0; v < VECTORS; v++) shared[v][LANE][COLUMN] = sums[e][v];
        for (u32 half_ = LANES / 2; half_ > 0; half_ /= 2) {
            BARRIER();
            if (LANE < half_) {
                for (u32 v = 0; v < VECTORS; v++) shared[v][LANE][COLUMN] += shared[v][LANE + half_][COLUMN];
            }
        }
        if (LANE == 0 && column < n) {
            for (u32 v = 0; v < VECTORS; v++) {
                u32 index = z * m * n + v * row_step + column * column_step;
                FINISH(RESULT(shared[v][0][COLUMN], v, column), index);
            }
        }
        BARRIER();
    }
}
