/* HIP's names for CUDA's runtime: takes the way of AMD GPUs through NVIDIA's. For tests only.
 *
 *   SHIM_CUDART    the library of CUDA's runtime
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static void *cuda(const char *name) {
    static void *library;
    if (!library) library = dlopen(getenv("SHIM_CUDART"), RTLD_NOW | RTLD_GLOBAL);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "shim: no %s in %s\n", name, getenv("SHIM_CUDART"));
        abort();
    }
    return function;
}

/* A function of the same meaning, arguments and numbers. */
#define SAME(result, hip, other, declared, given)                             \
    result hip declared {                                                     \
        static result(*function) declared;                                    \
        if (!function) function = (result(*) declared)cuda(other);            \
        return function given;                                                \
    }

SAME(int, hipGetDeviceCount, "cudaGetDeviceCount", (int *a), (a))
SAME(int, hipSetDevice, "cudaSetDevice", (int a), (a))
SAME(int, hipDeviceGetPCIBusId, "cudaDeviceGetPCIBusId", (char *a, int b, int c), (a, b, c))
SAME(int, hipRuntimeGetVersion, "cudaRuntimeGetVersion", (int *a), (a))
SAME(int, hipDriverGetVersion, "cudaDriverGetVersion", (int *a), (a))
SAME(const char *, hipGetErrorName, "cudaGetErrorName", (int a), (a))
SAME(const char *, hipGetErrorString, "cudaGetErrorString", (int a), (a))
SAME(int, hipMalloc, "cudaMalloc", (void **a, size_t b), (a, b))
SAME(int, hipFree, "cudaFree", (void *a), (a))
SAME(int, hipHostMalloc, "cudaHostAlloc", (void **a, size_t b, unsigned c), (a, b, c))
SAME(int, hipHostFree, "cudaFreeHost", (void *a), (a))
SAME(int, hipMemcpyAsync, "cudaMemcpyAsync", (void *a, const void *b, size_t c, int d, void *e), (a, b, c, d, e))
SAME(int, hipMemcpyPeerAsync, "cudaMemcpyPeerAsync", (void *a, int b, const void *c, int d, size_t e, void *f), (a, b, c, d, e, f))
SAME(int, hipMemsetAsync, "cudaMemsetAsync", (void *a, int b, size_t c, void *d), (a, b, c, d))
SAME(int, hipStreamCreateWithFlags, "cudaStreamCreateWithFlags", (void **a, unsigned b), (a, b))
SAME(int, hipStreamSynchronize, "cudaStreamSynchronize", (void *a), (a))
SAME(int, hipStreamQuery, "cudaStreamQuery", (void *a), (a))
SAME(int, hipStreamWaitEvent, "cudaStreamWaitEvent", (void *a, void *b, unsigned c), (a, b, c))
SAME(int, hipEventCreate, "cudaEventCreate", (void **a), (a))
SAME(int, hipEventRecord, "cudaEventRecord", (void *a, void *b), (a, b))
SAME(int, hipEventSynchronize, "cudaEventSynchronize", (void *a), (a))
SAME(int, hipEventElapsedTime, "cudaEventElapsedTime", (float *a, void *b, void *c), (a, b, c))
SAME(int, hipDeviceCanAccessPeer, "cudaDeviceCanAccessPeer", (int *a, int b, int c), (a, b, c))
SAME(int, hipDeviceEnablePeerAccess, "cudaDeviceEnablePeerAccess", (int a, unsigned b), (a, b))
