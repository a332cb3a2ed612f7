/* Joins what groups leave of the keys that each of them walks over: sums of products, weighted by the
   largest score of each. One element of the result a work-item; NOTHING is as in attention.cl. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE STORED
#define FINISH(value, index) STORE(value, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void attention_join(GLOBAL const float *parts, GLOBAL Y_TYPE *y, u32 y_batch, u32 y_head, u32 y_row, u32 y_column,
                    u32 heads, u32 lines, u32 rows, u32 columns, u32 keys EXTRA_PARAMETERS) {
    u32 item = GLOBAL_ID(0);
    if (item < lines * columns) {
        u32 column = item % columns, line = item / columns, head = line / rows;
        float top = -INFINITY, all = 0.0f, sum = 0.0f;
        for (u32 part = 0; part < SPLITS; part++) {
            top = fmax(top, parts[(part * lines + line) * (columns + 2) + columns]);
        }
        /* While all of a row is masked, its exponentials are 0. */
        float base = top == -INFINITY ? 0.0f : top;
        for (u32 part = 0; part < SPLITS; part++) {
            u32 from = (part * lines + line) * (columns + 2);
            float weight = exp(parts[from + columns] - base);
            all += weight * parts[from + columns + 1];
            sum += weight * parts[from + column];
        }
        float factor = NOTHING ? 0.0f : 1.0f / all;
        u32 to = head / heads * y_batch + head % heads * y_head + line % rows * y_row + column * y_column;
        FINISH(sum * factor, to);
    }
}
