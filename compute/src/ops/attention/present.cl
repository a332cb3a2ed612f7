/* The past and the new rows of every head, in [batch][head][key] order; the new ones may be anywhere,
   by the steps of batches, heads and rows. Elements are moved as words of their size. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void present(PAST_POINTER GLOBAL const WORD *new_, GLOBAL WORD *y, u32 count, u32 heads, u32 keys, u32 past,
             u32 size, u32 batch_step, u32 head_step, u32 row_step) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 column = i % size, key = i / size % keys, head = i / size / keys % heads;
        u32 batch = i / size / keys / heads;
        if (key < past) {
            y[i] = PAST(((batch * heads + head) * past + key) * size + column);
        } else {
            y[i] = new_[batch * batch_step + head * head_step + (key - past) * row_step + column];
        }
    }
}
