/* Writes one number to all elements. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void fill(GLOBAL TYPE *y, u32 count) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        STORE;
    }
}
