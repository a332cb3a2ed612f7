/* A tensor with repeated elements around it, one output a work-item. PLACES divides `rest` by the
   output's dimensions, the innermost first. */

/* The position between `first` and `last` whose element is repeated at `at`. */
DEVICE i32 repeated(i32 at, i32 first, i32 last) {
#ifdef WRAP
    i32 size = last - first + 1, rest = (at - first) % size;
    at = first + (rest < 0 ? rest + size : rest);
#endif
#ifdef REFLECT
    at = at < first ? 2 * first - at : at > last ? 2 * last - at : at;
#endif
    return at < first ? first : at > last ? last : at;
}

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z)
void pad_repeated(GLOBAL const WORD *x, GLOBAL WORD *y, u32 count) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        u32 rest = i, from = 0;
        PLACES
        y[i] = x[from];
    }
}
