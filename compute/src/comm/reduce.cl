/* Combines a part of the ring's sum with one rank's own elements. SUM is the parameter of the sum
   so far, if there is one; x and y may be the same memory. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void reduce_part(GLOBAL const TYPE *x, SUM GLOBAL RESULT *y, u32 from,
                                                              u32 to, u32 count) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        WIDE own = LOAD;
        STORE;
    }
}
