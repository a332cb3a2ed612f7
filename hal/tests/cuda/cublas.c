/* A library of products for tests: it multiplies nothing, and appends the names of its calls to the
   file that LGP_FAKE_LOG names. Definitions set at compile time say what it answers:
     MAJOR    the major version; the version is MAJOR.4.5
     PRODUCT  the answer of a product */

#include <stdio.h>
#include <stdlib.h>

#ifndef MAJOR
#define MAJOR 12
#endif
#ifndef PRODUCT
#define PRODUCT 0
#endif

static int library;

static unsigned called(const char *name) {
    const char *path = getenv("LGP_FAKE_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", name);
        fclose(log);
    }
    return 0;
}

unsigned cublasGetProperty(int which, int *value) {
    static const int version[] = {MAJOR, 4, 5};
    *value = which >= 0 && which < 3 ? version[which] : -1;
    return *value < 0 ? 7 : 0;
}

unsigned cublasCreate_v2(void **handle) {
    *handle = &library;
    return called(__func__);
}

unsigned cublasDestroy_v2(void *handle) { return handle == &library ? called(__func__) : 1; }

unsigned cublasSetStream_v2(void *handle, void *stream) {
    return handle == &library && stream ? called(__func__) : 1;
}

unsigned cublasSgemmStridedBatched(void *handle, int ta, int tb, int m, int n, int k,
                                   const float *alpha, const float *a, int lda, long long next_a,
                                   const float *b, int ldb, long long next_b, const float *beta,
                                   float *c, int ldc, long long next_c, int batch) {
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)next_a;
    (void)b, (void)ldb, (void)next_b, (void)beta, (void)c, (void)ldc, (void)next_c, (void)batch;
    called(__func__);
    return handle == &library ? PRODUCT : 1;
}
