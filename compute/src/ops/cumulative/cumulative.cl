/* Running sums along lines of n elements that are `inner` apart, one line a work-group: each
   work-item has a piece of the line, and starts from the sum of the pieces before it. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void cumulative(GLOBAL const TYPE *x, GLOBAL TYPE *y, u32 n, u32 inner) {
    LOCAL SUM pieces[GROUP_X];
    u32 line = GROUP_ID(0), lane = LOCAL_ID(0);
    u32 first = line / inner * n * inner + line % inner;
    u32 each = (n + GROUP_X - 1) / GROUP_X, from = lane * each;
    u32 end = from + each < n ? from + each : n;
    SUM sum = START;
    for (u32 i = from; i < end; i++) {
        u32 at = first + (REVERSE ? n - 1 - i : i) * inner;
        sum = JOIN(sum, (SUM)LOAD(at));
    }
    pieces[lane] = sum;
    BARRIER();
    sum = START;
    for (u32 p = 0; p < lane; p++) sum = JOIN(sum, pieces[p]);
    for (u32 i = from; i < end; i++) {
        u32 at = first + (REVERSE ? n - 1 - i : i) * inner;
        SUM next = JOIN(sum, (SUM)LOAD(at));
        SUM shown = EXCLUSIVE ? sum : next;
        STORE(shown, at);
        sum = next;
    }
}
