/* What kernels share. */

/* NaN passes through. */
DEVICE float limited(float x, float least, float most) { return x < least ? least : x > most ? most : x; }
