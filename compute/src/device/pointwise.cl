/* Element-wise operators, one element of the output per work-item. Generated are PARAMETERS, the
   tensors, and STEPS, which load the inputs' elements, compute the result and store it. */
KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void pointwise(PARAMETERS u32 count) {
    u32 i = GLOBAL_ID(0);
    if (i < count) {
        STEPS
    }
}
