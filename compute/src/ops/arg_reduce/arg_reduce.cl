/* The position of the extreme, or of the first NaN, in each of `count` lines of n elements, which
   are `apart` elements apart. */

/* Whether a at i is taken rather than b at j. */
DEVICE bool taken(REGISTER a, u32 i, REGISTER b, u32 j) {
    if (a != a || b != b) return a != a && (b == b || i < j);
    return a == b ? (LAST ? i > j : i < j) : BEYOND(a, b);
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void arg_reduce(GLOBAL const TYPE *x, GLOBAL i64 *y, u32 count, u32 n, u32 apart) {
    LOCAL REGISTER values[LANES][COLUMNS];
    LOCAL u32 places[LANES][COLUMNS];
    u32 line = GROUP_ID(0) * COLUMNS + COLUMN, lane = LANE;
    u32 known = line < count ? line : count - 1;
    u32 start = known / apart * apart * n + known % apart;
    /* A lane without elements takes the last element, which another lane has too. */
    u32 best = lane < n ? lane : n - 1;
    REGISTER value = LOAD(start + best * apart);
    for (u32 i = lane + LANES; i < n; i += LANES) {
        REGISTER next = LOAD(start + i * apart);
        if (taken(next, i, value, best)) {
            value = next;
            best = i;
        }
    }
    values[lane][COLUMN] = value;
    places[lane][COLUMN] = best;
    for (u32 step = LANES / 2; step > 0; step /= 2) {
        BARRIER();
        if (lane < step) {
            REGISTER next = values[lane + step][COLUMN];
            u32 place = places[lane + step][COLUMN];
            if (taken(next, place, values[lane][COLUMN], places[lane][COLUMN])) {
                values[lane][COLUMN] = next;
                places[lane][COLUMN] = place;
            }
        }
    }
    if (lane == 0 && line < count) y[line] = (i64)places[0][COLUMN];
}
