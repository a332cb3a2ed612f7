/* softmax(scores) · v without the matrix of scores: a work-group has ROWS rows of one head and
   walks over the keys, KEYS at a time. For each row it keeps the largest score so far and the sum
   of exponentials relative to that score. When the largest score grows, the sums are scaled.

   Work-item (x, y) has the rows from y · EACH_ROW on, EACH_ROW of them. It computes their scores for
   the keys from x · EACH_KEY on, and of the result the columns from x · EACH_COLUMN on.

   With SPLITS, groups walk over `share` keys each. Of each row they leave the sums of products, the
   largest score and the sum of exponentials, which attention_join joins.

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
#define Q_STEP (DEPTH + 4)
#define K_STEP (KEYS + 4)
#define W_STEP (KEYS + 4)
#define PARTS (ROWS * Q_STEP + DEPTH * K_STEP)
#define STAGE (PARTS > DEPTH * COLUMNS ? PARTS : DEPTH * COLUMNS)

/* Elements between neighbours along each axis of a tensor. */
#define STEPS(t) u32 t##_batch, u32 t##_head, u32 t##_row, u32 t##_column
#define START(t, head) (batch * t##_batch + (head) * t##_head)
#define PLACE(t, row, column) (t##_start + (row) * t##_row + (column) * t##_column)

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void attention(GLOBAL const STORED *q, GLOBAL const STORED *k, GLOBAL const STORED *v, MASK_POINTER COUNTS_POINTER
               GLOBAL Y_TYPE *y, STEPS(q), STEPS(k), STEPS(v), STEPS(mask), STEPS(y), u32 heads, u32 sharing,
               u32 rows, u32 keys, u32 depth, u32 columns, u32 width, u32 past, u32 share,
               float scale EXTRA_PARAMETERS) {
    LOCAL float stage[STAGE] ALIGNED;
    LOCAL float weights[ROWS * W_STEP] ALIGNED;
    LOCAL float tops[ROWS][20] ALIGNED;
    u32 x = LOCAL_ID(0), item = LOCAL_ID(1) * 16 + x, own = LOCAL_ID(1) * EACH_ROW;
    u32 batch = GROUP_ID(1) / heads, head = GROUP_ID(1) % heads;
    u32 first_row = GROUP_ID(0) / SPLITS * ROWS, first_column = GROUP_ID(2) * COLUMNS;
    u32 q_start = START(q, head), k_start = START(k, head / sharing), v_start = START(v, head / sharing);
    u32 mask_start = START(mask, head), y_start = START(y, head);
    float result[EACH_ROW][EACH_COLUMN], top[EACH_ROW], sum[EACH_ROW];
    for (u32 i = 0; i < EACH_ROW; i++) {
        top[i] = -INFINITY;
        sum[i] = 0.0f;
        for (u32 j = 0; j < EACH_COLUMN; j++) result[i][j] = 0.0f;
    }

    u32 begin = GROUP_ID(0) % SPLITS * share, end = begin + share < keys ? begin + share : keys;
    for (u32 first_key = begin; first_key < end; first_key += KEYS) {
        float scores[EACH_ROW][EACH_KEY];
        for (u32 i = 0; i < EACH_ROW; i++)
            for (u32 j = 0; j < EACH_KEY; j++) scores[i][j] = 0.0f;
        for (u32 at = 0; at < depth; at += DEPTH) {
            /* Elements that do not exist read some element and drop it, which costs no branch. */
            for (u32 e = item; e < ROWS * DEPTH; e += ITEMS) {
                u32 d = e % DEPTH, row = e / DEPTH;
                bool known = at + d < depth && first_row + row < rows;
                float value = LOAD(q, known ? PLACE(q, first_row + row, at + d) : q_start);
                stage[row * Q_STEP + d] = known ? value : 0.0f;
            }
            for (u32 e = item; e < KEYS * DEPTH; e += ITEMS) {
                u32 d = KEYS_APART ? e % DEPTH : e / KEYS, key = KEYS_APART ? e / DEPTH : e % KEYS;
                bool known = at + d < depth && first_key + key < end;
                float value = LOAD(k, known ? PLACE(k, at + d, first_key + key) : k_start);
                stage[ROWS * Q_STEP + d * K_STEP + key] = known ? value : 0.0f;
            }
            BARRIER();
            /* More at a time, and NVIDIA's compiler spills. */
            _Pragma("unroll 4")
            for (u32 d = 0; d < DEPTH; d++) {
                float l[EACH_ROW], r[EACH_KEY];
                for (u32 i = 0; i < EACH_ROW; i++) l[i] = stage[(own + i) * Q_STEP + d];
                for (u32 j = 0; j < EACH_KEY; j++) r[j] = stage[ROWS * Q_STEP + d * K_STEP + x * EACH_KEY + j];
                for (u32 i = 0; i < EACH_ROW; i++)
                    for (u32 j = 0; j < EACH_KEY; j++) scores[i][j] += l[i] * r[j];
            }
            BARRIER();
        }

        for (u32 i = 0; i < EACH_ROW; i++) {
            float most = -INFINITY;
            for (u32 j = 0; j < EACH_KEY; j++) {
                u32 row = first_row + own + i, key = first_key + x * EACH_KEY + j;
                if (row < rows && key < end && SEEN(row, key)) {
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
                weights[(own + i) * W_STEP + x * EACH_KEY + j] = weight;
            }
        }

        for (u32 part = 0; part < KEYS / DEPTH && first_key + part * DEPTH < end; part++) {
            BARRIER();
            for (u32 e = item; e < DEPTH * COLUMNS; e += ITEMS) {
                u32 key = first_key + part * DEPTH + e / COLUMNS, column = first_column + e % COLUMNS;
                bool known = key < end && column < columns;
                float value = LOAD(v, known ? PLACE(v, key, column) : v_start);
                stage[e] = known ? value : 0.0f;
            }
            BARRIER();
            _Pragma("unroll 4")
            for (u32 d = 0; d < DEPTH; d++) {
                float l[EACH_ROW];
                /* Whole fours are counted, so that Mesa's compiler sees that a line begins at a multiple of 16 B. */
                for (u32 i = 0; i < EACH_ROW; i++)
                    l[i] = weights[4 * ((own + i) * (W_STEP / 4) + part * (DEPTH / 4)) + d];
                for (u32 j = 0; j < EACH_COLUMN; j++) {
                    float r = stage[d * COLUMNS + x * EACH_COLUMN + j];
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
#if SPLITS > 1
        u32 row = first_row + own + i;
        u32 to = ((GROUP_ID(0) % SPLITS * GROUPS(1) + GROUP_ID(1)) * rows + row) * (columns + 2);
        for (u32 j = 0; j < EACH_COLUMN; j++) {
            u32 column = first_column + x * EACH_COLUMN + j;
            if (row < rows && column < columns) y[to + column] = result[i][j];
        }
        if (row < rows && x == 0 && first_column == 0) {
            y[to + columns] = top[i];
            y[to + columns + 1] = all;
        }
#else
        float factor = NOTHING ? 0.0f : 1.0f / all;
        for (u32 j = 0; j < EACH_COLUMN; j++) {
            u32 row = first_row + own + i, column = first_column + x * EACH_COLUMN + j;
            if (row < rows && column < columns) {
                FINISH(result[i][j] * factor, PLACE(y, row, column));
            }
        }
#endif
    }
}
