/* Functions that kernels share. */

/* x within the limits; NaN passes through. */
DEVICE float limited(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

/* The position of an element on an axis. A negative index counts from the back; an index beyond the
   axis gives the nearest position. */
DEVICE u32 element_of(i64 index, u32 size) {
    index = index < 0 ? index + (i64)size : index;
    return index < 0 ? 0 : index < (i64)size ? (u32)index : size - 1;
}
