/* A driver library for tests: one device whose memory is the host's. Definitions set at compile
   time say what it answers:
     VERSION     the driver's CUDA version, as 1000 * major + 10 * minor
     CAPABILITY  the device's compute capability, as 10 * major + minor
     INIT        the answer of cuInit
     ILLEGAL     set: a launch is an illegal access, which the next wait reports
     WAIT        set: a wait for the whole context ends it with this error
     RETAIN      the answer of cuDevicePrimaryCtxRetain
   Every call appends its name to the file that LGP_FAKE_LOG names. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION 12090
#endif
#ifndef CAPABILITY
#define CAPABILITY 61
#endif
#ifndef INIT
#define INIT 0
#endif

#ifndef RETAIN
#define RETAIN 0
#endif

typedef unsigned long long address;

/* The error that ends the context; the process keeps it. */
static unsigned ended = 0;
static int context = 0;
static int thing = 0;

static unsigned called(const char *name) {
    const char *path = getenv("LGP_FAKE_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", name);
        fclose(log);
    }
    return ended;
}

#define CALL called(__func__)
/* A call that makes something of which only the handle counts. */
#define MAKES(handle) \
    do { \
        *(handle) = &thing; \
        return CALL; \
    } while (0)

unsigned cuInit(unsigned flags) {
    CALL;
    return flags ? 1 : INIT;
}

unsigned cuGetErrorName(unsigned code, const char **name) {
    if (INIT == 34)
        return 34;
    *name = code == 700   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == 222 ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
                          : NULL;
    return *name ? 0 : 1;
}

unsigned cuDriverGetVersion(int *version) {
    *version = VERSION;
    return 0;
}

unsigned cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

unsigned cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? 0 : 101;
}

unsigned cuDeviceGetName(char *name, int bytes, int device) {
    (void)device;
    snprintf(name, bytes, "device of the tests");
    return 0;
}

unsigned cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = 1 << 30;
    return 0;
}

unsigned cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    switch (which) {
    case 1: *value = 1024; break;            /* threads of a block */
    case 8: *value = 48 << 10; break;        /* shared memory of a block */
    case 10: *value = 32; break;             /* warp */
    case 13: *value = 1000000; break;        /* kHz */
    case 16: *value = 20; break;             /* multiprocessors */
    case 75: *value = CAPABILITY / 10; break;
    case 76: *value = CAPABILITY % 10; break;
    default: *value = 0;
    }
    return 0;
}

unsigned cuDevicePrimaryCtxRetain(int **handle, int device) {
    (void)device;
    CALL;
    *handle = &context;
    return RETAIN;
}

unsigned cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return CALL;
}

static _Thread_local int *current = NULL;

unsigned cuCtxGetCurrent(int **handle) {
    *handle = current;
    return 0;
}

unsigned cuCtxSetCurrent(int *handle) {
    current = handle;
    return 0;
}

unsigned cuCtxSynchronize(void) {
#ifdef WAIT
    ended = WAIT;
#endif
    return CALL;
}

unsigned cuStreamCreate(int **stream, unsigned flags) {
    (void)flags;
    MAKES(stream);
}
unsigned cuStreamDestroy_v2(int *stream) { return stream == &thing ? CALL : 400; }
unsigned cuStreamSynchronize(int *stream) { return stream == &thing ? CALL : 400; }
unsigned cuStreamWaitEvent(int *stream, int *event, unsigned flags) {
    return stream == &thing && event == &thing && flags == 0 ? CALL : 400;
}

unsigned cuMemGetInfo_v2(size_t *free, size_t *total) {
    *free = 1 << 29;
    *total = 1 << 30;
    return CALL;
}

unsigned cuMemAlloc_v2(address *at, size_t bytes) {
    unsigned answer = CALL;
    *at = (address)malloc(bytes);
    return answer;
}

unsigned cuMemFree_v2(address at) {
    free((void *)at);
    return CALL;
}

unsigned cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    (void)flags;
    *at = malloc(bytes);
    return CALL;
}

unsigned cuMemFreeHost(void *at) {
    free(at);
    return CALL;
}

unsigned cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, int *stream) {
    memcpy((void *)to, from, bytes);
    return stream == &thing ? CALL : 400;
}

unsigned cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, int *stream) {
    memcpy(to, (void *)from, bytes);
    return stream == &thing ? CALL : 400;
}

unsigned cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, int *stream) {
    memcpy((void *)to, (void *)from, bytes);
    return stream == &thing ? CALL : 400;
}

/* An image is machine code of a compute capability, or PTX of a version of CUDA. */
unsigned cuModuleLoadData(int **module, const void *image) {
    int major, minor, capability;
    if (sscanf(image, "\177ELF sm_%d", &capability) == 1) {
        if (capability != CAPABILITY)
            return 209;
    } else if (sscanf(image, ".version %d.%d", &major, &minor) != 2) {
        return 200;
    } else if (1000 * major + 10 * minor > VERSION) {
        return 222;
    }
    MAKES(module);
}

unsigned cuModuleUnload(int *module) { return module == &thing ? CALL : 400; }

unsigned cuModuleGetFunction(int **function, int *module, const char *name) {
    if (module != &thing || strcmp(name, "touch") != 0)
        return 500;
    MAKES(function);
}

unsigned cuFuncGetAttribute(int *value, int which, int *function) {
    *value = which == 0 ? 256 : 0;
    return function == &thing ? CALL : 400;
}

/* The one kernel writes its second argument into the first byte of its first. */
unsigned cuLaunchKernel(int *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, int *stream, void **arguments,
                        void **extra) {
    unsigned long long items = 1ull * gx * gy * gz * bx * by * bz;
    if (function != &thing || stream != &thing || extra || shared || items == 0)
        return 1;
    unsigned answer = CALL;
#ifdef ILLEGAL
    ended = 700;
#else
    **(unsigned char **)arguments[0] = *(unsigned *)arguments[1];
#endif
    return answer;
}

unsigned cuEventCreate(int **event, unsigned flags) {
    (void)flags;
    MAKES(event);
}
unsigned cuEventDestroy_v2(int *event) { return event == &thing ? CALL : 400; }
unsigned cuEventRecord(int *event, int *stream) {
    return event == &thing && stream == &thing ? CALL : 400;
}
/* Done when it is asked for the second time. */
unsigned cuEventQuery(int *event) {
    static int asked = 0;
    unsigned answer = event == &thing ? CALL : 400;
    return answer ? answer : asked++ ? 0 : 600;
}
unsigned cuEventSynchronize(int *event) { return event == &thing ? CALL : 400; }
unsigned cuEventElapsedTime(float *ms, int *from, int *to) {
    *ms = 1.5f;
    return from == &thing && to == &thing ? CALL : 400;
}
