/* A compiler for tests, of version MAJOR.MINOR, for the architectures that ARCHITECTURES lists. Its
   code names the target and the version, and declares one kernel whatever the source is. */

#include <stdio.h>
#include <string.h>

static const int architectures[] = {ARCHITECTURES};
static const int count = sizeof architectures / sizeof *architectures;
static char ptx[200], cubin[40];

unsigned nvrtcVersion(int *major, int *minor) {
    *major = MAJOR;
    *minor = MINOR;
    return 0;
}

unsigned nvrtcGetNumSupportedArchs(int *number) {
    *number = count;
    return 0;
}

unsigned nvrtcGetSupportedArchs(int *numbers) {
    memcpy(numbers, architectures, sizeof architectures);
    return 0;
}

unsigned nvrtcCreateProgram(void **program, const char *source, const char *name, int headers,
                            const char *const *texts, const char *const *names) {
    *program = ptx;
    return source && !name && !headers && !texts && !names ? 0 : 3;
}

unsigned nvrtcDestroyProgram(void **program) { return *program == ptx ? 0 : 4; }

unsigned nvrtcCompileProgram(void *program, int number, const char *const *options) {
    const char *target = number ? strchr(options[number - 1], '=') : NULL;
    if (program != ptx || !target)
        return 5;
    snprintf(cubin, sizeof cubin, "\177ELF %s", target + 1);
    snprintf(ptx, sizeof ptx, ".version %d.%d\n// %s\n.visible .entry touch(%s)\n", MAJOR, MINOR,
             target + 1, ".param .u64 a, .param .u32 b");
    return 0;
}

unsigned nvrtcGetProgramLogSize(void *program, size_t *bytes) {
    *bytes = 1;
    return program == ptx ? 0 : 4;
}

unsigned nvrtcGetProgramLog(void *program, char *log) {
    *log = 0;
    return program == ptx ? 0 : 4;
}

unsigned nvrtcGetPTXSize(void *program, size_t *bytes) {
    *bytes = strlen(ptx) + 1;
    return program == ptx ? 0 : 4;
}

unsigned nvrtcGetPTX(void *program, char *text) {
    strcpy(text, ptx);
    return program == ptx ? 0 : 4;
}

unsigned nvrtcGetCUBINSize(void *program, size_t *bytes) {
    *bytes = strlen(cubin) + 1;
    return program == ptx ? 0 : 4;
}

unsigned nvrtcGetCUBIN(void *program, char *code) {
    strcpy(code, cubin);
    return program == ptx ? 0 : 4;
}
