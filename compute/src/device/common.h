/* What kernels share. */

/* NaN passes through. */
DEVICE float limited(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

/* An element of an axis, by an index that counts from the back where it is negative; the nearest
   where there is none. */
DEVICE u32 element_of(i64 index, u32 size) {
    index = index < 0 ? index + (i64)size : index;
    return index < 0 ? 0 : index < (i64)size ? (u32)index : size - 1;
}
