/* softmax(scores) · v without the matrix of scores: a work-group has ROWS rows of one head and
   walks over the keys, KEYS at a time. For each row it keeps the largest score so far and the sum
   of exponentials relative to that score. When the largest score grows, the sums are scaled.

   Work-item (x, y) has the rows from y · EACH_ROW on, EACH_ROW of them. It computes their scores for
   the keys x, x + 16 …, and of the result the columns x, x + 16 …, EACH_COLUMN of them.

   Generated are LOAD(p, i), an element; SCORE(product, row, key), the score for a product of rows of
   q and k; SEEN(row, key), whether a score counts; and NOTHING, whether a row has nothing to attend
   to, so that its result is 0. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif
#define ROWS (16 * EACH_ROW)
#define COLUMNS (16 * EACH_COLUMN)
#define EACH_KEY 4
#define KEYS (16 * EACH_KEY)
#define DEPTH 16
#define ITEMS 256
/* Words for DEPTH elements of each row of q and k, or for DEPTH rows of v. */
#define PARTS (DEPTH * (ROWS + 4 + KEYS + 4))
#define STAGE (PARTS > DEPTH * COLUMNS ? PARTS : DEPTH * COLUMNS)

/* Elements between neighbours along each axis of a tensor. */
#define STEPS(t) u32 t##_batch, u32 t##_head, u32 t##_row, u32 t##_column
#define START(t, head) (batch * t##_batch + (head) * t##_head)
#define PLACE(t, row, column) (t##_start + (row) * t##_row + (column) * t##_column)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void attention(GLOBAL const STORED *q, GLOBAL const STORED *k, GLOBAL const STORED *v, MASK_POINTER COUNTS_POINTER
               GLOBAL Y_TYPE *y, STEPS(q), STEPS(k), STEPS(v), STEPS(mask), STEPS(y), u32 heads, u32 sharing,
               u32 rows, u32 keys, u32 depth, u32 columns, u32 width, u32 past, float scale EXTRA_PARAMETERS) {
    LOCAL float stage[STAGE] ALIGNED;
    LOCAL float weights[KEYS][ROWS + 4] ALIGNED;
    LOCAL float tops[ROWS][17];
    u32 x = LOCAL_ID(0), item = LOCAL_ID(1) * 16 + x, own = LOCAL_ID(1) * EACH_ROW;
    u32 batch = GROUP_ID(1) / heads, head = GROUP_ID(1) % heads;
    u32 first_row = GROUP_ID(0) * ROWS, first_column = GROUP_ID(2) * COLUMNS;
    u32 q_start = START(q, head), k_start = START(k, head / sharing), v_start = START(v, head / sharing);
    u32 mask_start = START(mask, head), y_start = START(y, head);
    float result[EACH_ROW][EACH_COLUMN], top[EACH_ROW], sum[EACH_ROW];
    for (u32 i = 0; i < EACH_ROW; i++) {
        top[i] = -INFINITY;
        sum[i] = 0.0f;
        for (u32 j = 0; j < EACH_COLUMN; j++) result[i][j] = 0.0f;
    }

    for (u32 first_key = 0; first_key < keys; first_key += KEYS) {
        float scores[EACH_ROW][EACH_KEY];
        for (u32 i = 0; i < EACH_ROW; i++)
            for (u32 j = 0; j < EACH_KEY; j++) scores[i][j] = 0.0f;
        for (u32 at = 0; at < depth; at += DEPTH) {
            for (u32 e = item; e < ROWS * DEPTH; e += ITEMS) {
                u32 d = e % DEPTH, row = e / DEPTH;
                bool known = at + d < depth && first_row + row < rows;
                stage[d * (ROWS + 4) + row] = known ? LOAD(q, PLACE(q, first_row + row, at + d)) : 0.0f;
            }
            for (u32 e = item; e < KEYS * DEPTH; e += ITEMS) {
                u32 d = KEYS_APART ? e % DEPTH : e / KEYS, key = KEYS_APART ? e / DEPTH : e % KEYS;
                bool known = at + d < depth && first_key + key < keys;
                stage[DEPTH * (ROWS + 4) + d * (KEYS + 4) + key] =
                    known ? LOAD(k, PLACE(k, at + d, first_key + key)) : 0.0f;
            }
            BARRIER();
            for (u32 d = 0; d < DEPTH; d++) {
                float l[EACH_ROW], r[EACH_KEY];
                for (u32 i = 0; i < EACH_ROW; i++) l[i] = stage[d * (ROWS + 4) + own + i];
                for (u32 j = 0; j < EACH_KEY; j++)
                    r[j] = stage[DEPTH * (ROWS + 4) + d * (KEYS + 4) + x + 16 * j];
                for (u32 i = 0; i < EACH_ROW; i++)
                    for (u32 j = 0; j < EACH_KEY; j++) scores[i][j] += l[i] * r[j];
            }
            BARRIER();
        }

        for (u32 i = 0; i < EACH_ROW; i++) {
            float most = -INFINITY;
            for (u32 j = 0; j < EACH_KEY; j++) {
                u32 row = first_row + own + i, key = first_key + x + 16 * j;
                if (row < rows && key < keys && SEEN(row, key)) {
                    scores[i][j] = SCORE(scores[i][j] * scale, row, key);
                } else {
                    scores[i][j] = -INFINITY;
                }
                most = fmax(most, scores[i][j]);
            }
            tops[own + i][x] = most;
        }
        BARRIER();
        for (u32 i = 0; i < EACH_ROW; i++) {
            float most = top[i];
            for (u32 j = 0; j < 16; j++) most = fmax(most, tops[own + i][j]);
            /* While all of a row is masked, its exponentials are 0. */
            float base = most == -INFINITY ? 0.0f : most;
            float shrink = exp(top[i] - base);
            top[i] = most;
            sum[i] *= shrink;
            for (u32 j = 0; j < EACH_COLUMN; j++) result[i][j] *= shrink;
            for (u32 j = 0; j < EACH_KEY; j++) {
                float weight = exp(scores[i][j] - base);
                sum[i] += weight;
                weights[x + 16 * j][own + i] = weight;
            }
        }

        for (u32 at = 0; at < KEYS && first_key + at < keys; at += DEPTH) {
            BARRIER();
            for (u32 e = item; e < DEPTH * COLUMNS; e += ITEMS) {
                u32 key = first_key + at + e / COLUMNS, column = first_column + e % COLUMNS;
                stage[e] = key < keys && column < columns ? LOAD(v, PLACE(v, key, column)) : 0.0f;
            }
            BARRIER();
            for (u32 d = 0; d < DEPTH; d++) {
                float l[EACH_ROW];
                for (u32 i = 0; i < EACH_ROW; i++) l[i] = weights[at + d][own + i];
                for (u32 j = 0; j < EACH_COLUMN; j++) {
                    float r = stage[d * COLUMNS + x + 16 * j];
                    for (u32 i = 0; i < EACH_ROW; i++) result[i][j] += l[i] * r;
                }
            }
        }
        BARRIER();
    }

    for (u32 i = 0; i < EACH_ROW; i++) tops[own + i][x] = sum[i];
    BARRIER();
    for (u32 i = 0; i < EACH_ROW; i++) {
        float all = 0.0f;
        for (u32 j = 0; j < 16; j++) all += tops[own + i][j];
        float factor = NOTHING ? 0.0f : 1.0f / all;
        for (u32 j = 0; j < EACH_COLUMN; j++) {
            u32 row = first_row + own + i, column = first_column + x + 16 * j;
            if (row < rows && column < columns) FINISH(result[i][j] * factor, PLACE(y, row, column));
        }
    }
}
