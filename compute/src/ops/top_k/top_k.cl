/* The first k of each line of n elements that are `inner` apart, in order, one line a work-group.
   Each search is among the elements that come after the one found last. */
#define NONE 0xffffffffu

/* The larger of two numbers; NaN is the largest. */
DEVICE bool larger(REGISTER a, REGISTER b) { return a > b || (a != a && b == b); }

/* Whether a at i comes before b at j. */
DEVICE bool before(REGISTER a, u32 i, REGISTER b, u32 j) {
    bool first = LARGEST ? larger(a, b) : larger(b, a), second = LARGEST ? larger(b, a) : larger(a, b);
    return first || (!second && i < j);
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void top_k(GLOBAL const TYPE *x, GLOBAL TYPE *values, GLOBAL i64 *positions, u32 n, u32 k, u32 inner) {
    LOCAL REGISTER best[GROUP_X];
    LOCAL u32 places[GROUP_X];
    u32 line = GROUP_ID(0), lane = LOCAL_ID(0);
    u32 start = line / inner * n * inner + line % inner;
    u32 to = line / inner * k * inner + line % inner;
    REGISTER last = LOAD(start);
    u32 last_place = NONE;
    for (u32 found = 0; found < k; found++) {
        REGISTER value = last;
        u32 place = NONE;
        for (u32 i = lane; i < n; i += GROUP_X) {
            REGISTER next = LOAD(start + i * inner);
            bool left = last_place == NONE || before(last, last_place, next, i);
            if (left && (place == NONE || before(next, i, value, place))) {
                value = next;
                place = i;
            }
        }
        best[lane] = value;
        places[lane] = place;
        for (u32 step = GROUP_X / 2; step > 0; step /= 2) {
            BARRIER();
            if (lane < step) {
                u32 other = places[lane + step];
                if (other != NONE && (places[lane] == NONE
                                      || before(best[lane + step], other, best[lane], places[lane]))) {
                    best[lane] = best[lane + step];
                    places[lane] = other;
                }
            }
        }
        BARRIER();
        last = best[0];
        last_place = places[0];
        BARRIER();
        if (lane == 0) {
            values[to + found * inner] = x[start + last_place * inner];
            positions[to + found * inner] = (i64)last_place;
        }
    }
}
