/* Lines that several work-items share: a work-group has COLUMNS lines of LANES work-items each.
   LINES_APART says that neighbours in memory belong to different lines. */
#if LINES_APART
#define COLUMNS GROUP_X
#define LANES GROUP_Y
#define COLUMN LOCAL_ID(0)
#define LANE LOCAL_ID(1)
#else
#define COLUMNS GROUP_Y
#define LANES GROUP_X
#define COLUMN LOCAL_ID(1)
#define LANE LOCAL_ID(0)
#endif

DEVICE float plus(float a, float b) { return a + b; }

/* Combines the values of a line's work-items; all of them get the result. LANES is a power of two,
   and `shared` has an element for each work-item of the group. */
#define COMBINE(value, combine, shared)                                                            \
    shared[LANE][COLUMN] = value;                                                                  \
    for (u32 step = LANES / 2; step > 0; step /= 2) {                                              \
        BARRIER();                                                                                 \
        if (LANE < step) shared[LANE][COLUMN] = combine(shared[LANE][COLUMN], shared[LANE + step][COLUMN]); \
    }                                                                                              \
    BARRIER();                                                                                     \
    value = shared[0][COLUMN];                                                                     \
    BARRIER();
