/* Pooling of whole planes, one a work-group.
   START, COMBINE and RESULT make it a maximum, a sum or a mean. */
#ifndef EXTRA_PARAMETERS
#define EXTRA_PARAMETERS
#define Y_TYPE X_TYPE
#define FINISH(value, index) STORE(value, y, index)
#endif

KERNEL GROUP_SIZE(GROUP_X, GROUP_Y, GROUP_Z) void global_pool(
    GLOBAL const X_TYPE *x, GLOBAL Y_TYPE *y, u32 plane EXTRA_PARAMETERS) {
    LOCAL float parts[GROUP_X];
    u32 item = LOCAL_ID(0), row = GROUP_ID(0);
    float value = START;
    for (u32 i = item; i < plane; i += GROUP_X) {
        float next = LOAD(x, row * plane + i);
        value = COMBINE(value, next);
    }
    parts[item] = value;
    for (u32 width = GROUP_X / 2; width > 0; width /= 2) {
        BARRIER();
        if (item < width) parts[item] = COMBINE(parts[item], parts[item + width]);
    }
    if (item == 0) {
        FINISH(RESULT(parts[0], plane), row);
    }
}
