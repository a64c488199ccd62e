/* hipBLASLt's names and numbers for cuBLASLt. For tests only.
 *
 *   SHIM_CUBLASLT  the library
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIP_F32 = 2, HIP_TF32 = 6, CUDA_F32 = 68, CUDA_TF32 = 77, HIP_TRANSA = 0, CUDA_TRANSA = 3, HIP_T = 112, CUDA_T = 1, NOT_SUPPORTED = 7, FNUZ = 1000, MOST = 64 };

/* What each vendor's heuristic writes. */
struct cuda_result { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; };
struct hip_result { uint8_t algorithm[16]; size_t most; size_t workspace; int state; float waves; int reserved[4]; };

/* An algorithm of CUDA has more bytes than one of HIP: this is where they are. */
static struct cuda_result chosen[MOST];
static uint64_t count;

static void *cublas(const char *name) {
    static void *library;
    if (!library) library = dlopen(getenv("SHIM_CUBLASLT"), RTLD_NOW | RTLD_GLOBAL);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "shim: no %s in %s\n", name, getenv("SHIM_CUBLASLT"));
        abort();
    }
    return function;
}

int hipblasLtCreate(void **handle) { return ((int (*)(void **))cublas("cublasLtCreate"))(handle); }

int hipblasLtGetVersion(void *handle, int *version) {
    (void)handle;
    *version = (int)((size_t(*)(void))cublas("cublasLtGetVersion"))();
    return 0;
}

int hipblasLtMatmulDescCreate(void **product, int compute, int scale) {
    int number = compute == HIP_F32 ? CUDA_F32 : compute == HIP_TF32 ? CUDA_TF32 : -1;
    return ((int (*)(void **, int, int))cublas("cublasLtMatmulDescCreate"))(product, number, scale);
}

int hipblasLtMatmulDescSetAttribute(void *product, int attribute, const void *value, size_t bytes) {
    int32_t operation;
    if (attribute != HIP_TRANSA || bytes != sizeof operation) return NOT_SUPPORTED;
    memcpy(&operation, value, bytes);
    if (operation != HIP_T) return NOT_SUPPORTED;
    operation = CUDA_T;
    return ((int (*)(void *, int, const void *, size_t))cublas("cublasLtMatmulDescSetAttribute"))(product, CUDA_TRANSA, &operation, bytes);
}

int hipblasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t step) {
    if (type == FNUZ) return NOT_SUPPORTED;
    return ((int (*)(void **, int, uint64_t, uint64_t, int64_t))cublas("cublasLtMatrixLayoutCreate"))(layout, type, rows, columns, step);
}

int hipblasLtMatmulPreferenceCreate(void **preference) {
    return ((int (*)(void **))cublas("cublasLtMatmulPreferenceCreate"))(preference);
}

int hipblasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
    /* The size of the workspace is 1 in both. */
    return ((int (*)(void *, int, const void *, size_t))cublas("cublasLtMatmulPreferenceSetAttribute"))(preference, attribute, value, bytes);
}

int hipblasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c, void *d, void *preference,
                                    int most, struct hip_result *results, int *found) {
    if (most != 1 || count == MOST) return NOT_SUPPORTED;
    struct cuda_result *result = &chosen[count];
    int status = ((int (*)(void *, void *, void *, void *, void *, void *, void *, int, struct cuda_result *, int *))cublas(
        "cublasLtMatmulAlgoGetHeuristic"))(handle, product, a, b, c, d, preference, most, result, found);
    memset(results, 0, sizeof *results);
    memcpy(results->algorithm, &count, sizeof count);
    results->workspace = result->workspace;
    results->state = result->state;
    count++;
    return status;
}

int hipblasLtMatmul(void *handle, void *product, const void *alpha, const void *a, void *of_a, const void *b, void *of_b,
                    const void *beta, const void *c, void *of_c, void *d, void *of_d, const void *algorithm,
                    void *workspace, size_t room, void *stream) {
    uint64_t number;
    memcpy(&number, algorithm, sizeof number);
    return ((int (*)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *,
                     void *, void *, const void *, void *, size_t, void *))cublas("cublasLtMatmul"))(
        handle, product, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, chosen[number].algorithm, workspace, room, stream);
}
