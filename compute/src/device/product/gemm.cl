/* A work-group computes a tile of ROWS × COLUMNS, a work-item EACH_ROW × EACH_COLUMN of it; EACH_ROW
   is 4, 6 or 8. Both operands pass through local memory, DEPTH elements of the sum at a time; the next
   elements are on their way while these are multiplied. Along z there is a group for each batch of
   each part of the sum; a part has `part` elements. */
#define ITEMS (GROUP_X * GROUP_Y)

/* Where vector `e` of an operand's part of the tile begins. */
DEVICE u32 tile_depth(u32 along, u32 side, u32 width, u32 e) {
    return along ? e % (DEPTH / width) * width : e / (side / width);
}
DEVICE u32 tile_side(u32 along, u32 side, u32 width, u32 e) {
    return along ? e / (DEPTH / width) : e % (side / width) * width;
}

/* Vectors of an operand's part of the tile, and how many of them an item takes. */
#define VECTORS(side_tile, width) (side_tile * DEPTH / (width))
#define LOADS(side_tile, width) ((VECTORS(side_tile, width) + ITEMS - 1) / ITEMS)
#define TAKES(e, side_tile, width) (VECTORS(side_tile, width) % ITEMS == 0 || e < VECTORS(side_tile, width))

/* Beyond the operand's last row or column, the last one is read again, and its sums are not stored.
   Beyond the end of the sum, elements are zero. */
#define FETCH(next, vector, first, size, start, side_tile, along, width)                            \
    for (u32 t = 0; t < LOADS(side_tile, width); t++) {                                             \
        u32 e = t * ITEMS + item;                                                                   \
        u32 side = least(first + tile_side(along, side_tile, width, e), size - (along ? 1 : width)); \
        u32 depth = at + tile_depth(along, side_tile, width, e);                                    \
        if ((!EDGE || depth < end) && TAKES(e, side_tile, width)) {                                 \
            vector(next, t * width, start + place(along, size, k, side, depth), side);              \
        } else {                                                                                    \
            for (u32 i = 0; i < width; i++) next[t * width + i] = 0;                                \
        }                                                                                           \
    }
#define KEEP(tile, next, side_tile, along, width)                                                   \
    for (u32 t = 0; t < LOADS(side_tile, width); t++) {                                             \
        u32 e = t * ITEMS + item;                                                                   \
        u32 side = tile_side(along, side_tile, width, e);                                           \
        u32 depth = tile_depth(along, side_tile, width, e);                                         \
        for (u32 i = 0; i < width && TAKES(e, side_tile, width); i++) {                             \
            tile[depth + (along ? i : 0)][side + (along ? 0 : i)] = next[t * width + i];            \
        }                                                                                           \
    }

#define STORE_ROW(i)                                                                                \
    UNROLL                                                                                          \
    for (u32 j = 0; j < EACH_COLUMN; j++) {                                                         \
        u32 row = first_row + LOCAL_ID(1) * EACH_ROW + i;                                           \
        u32 column = first_column + LOCAL_ID(0) * EACH_COLUMN + j;                                  \
        if (row < m && column < n) {                                                                \
            u32 index = z * m * n + row * row_step + column * column_step;                          \
            FINISH(RESULT(sums[i][j], row, column), index);                                         \
        }                                                                                           \
    }

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void gemm(OPERANDS GLOBAL Y_TYPE *y, u32 m, u32 n, u32 k, u32 row_step, u32 column_step, u32 batches,
          u32 part EXTRA_PARAMETERS) {
    /* Four more columns, so that stores along the sum go to different banks. */
    LOCAL TILE left[DEPTH][ROWS + 4] ALIGNED;
    LOCAL TILE right[DEPTH][COLUMNS + 4] ALIGNED;
    u32 item = LOCAL_ID(1) * GROUP_X + LOCAL_ID(0);
    u32 first_row = GROUP_ID(1) * ROWS, first_column = GROUP_ID(0) * COLUMNS;
    u32 z = GROUP_ID(2);
    u32 left_start = LEFT_BATCH(z % batches), right_start = RIGHT_BATCH(z % batches);
    u32 at = z / batches * part;
    u32 end = least(k, at + part);
    TILE next_left[LOADS(ROWS, LEFT_WIDTH) * LEFT_WIDTH], next_right[LOADS(COLUMNS, RIGHT_WIDTH) * RIGHT_WIDTH];
    SUM sums[EACH_ROW][EACH_COLUMN];
    for (u32 i = 0; i < EACH_ROW; i++)
        for (u32 j = 0; j < EACH_COLUMN; j++) sums[i][j] = 0;

    if (at < end) {
        FETCH(next_left, LEFT_VECTOR, first_row, m, left_start, ROWS, LEFT_ALONG, LEFT_WIDTH)
        FETCH(next_right, RIGHT_VECTOR, first_column, n, right_start, COLUMNS, RIGHT_ALONG, RIGHT_WIDTH)
    }
    while (at < end) {
        KEEP(left, next_left, ROWS, LEFT_ALONG, LEFT_WIDTH)
        KEEP(right, next_right, COLUMNS, RIGHT_ALONG, RIGHT_WIDTH)
        BARRIER();
        at += DEPTH;
        if (at < end) {
            FETCH(next_left, LEFT_VECTOR, first_row, m, left_start, ROWS, LEFT_ALONG, LEFT_WIDTH)
            FETCH(next_right, RIGHT_VECTOR, first_column, n, right_start, COLUMNS, RIGHT_ALONG, RIGHT_WIDTH)
        }
        UNROLL_DEPTH
        for (u32 d = 0; d < DEPTH; d++) {
            SUM l[EACH_ROW], r[EACH_COLUMN];
            for (u32 i = 0; i < EACH_ROW; i++) l[i] = left[d][LOCAL_ID(1) * EACH_ROW + i];
            for (u32 j = 0; j < EACH_COLUMN; j++) r[j] = right[d][LOCAL_ID(0) * EACH_COLUMN + j];
            for (u32 i = 0; i < EACH_ROW; i++)
                for (u32 j = 0; j < EACH_COLUMN; j++) sums[i][j] += l[i] * r[j];
        }
        BARRIER();
    }
    /* Row by row: a loop around a long fused tail is not written out, and then the sums are no registers. */
    STORE_ROW(0)
    STORE_ROW(1)
    STORE_ROW(2)
    STORE_ROW(3)
#if EACH_ROW > 4
    STORE_ROW(4)
    STORE_ROW(5)
#endif
#if EACH_ROW > 6
    STORE_ROW(6)
    STORE_ROW(7)
#endif
}
