/* Element-wise operators, one element of the output a work-item.
   PARAMETERS, INDICES and STEPS are generated: the inputs, each one's place, and the result. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void pointwise(PARAMETERS u32 count) {
    u32 i = (u32)GLOBAL_ID(0);
    if (i < count) {
        STEPS
    }
}
