/* The one name of RCCL's that NCCL spells in another way; it is linked with NCCL, which has the rest.
 * For tests only. */
#include <stddef.h>

int ncclAlltoAll(const void *, void *, size_t, int, void *, void *);

int ncclAllToAll(const void *from, void *to, size_t count, int type, void *comm, void *stream) {
    return ncclAlltoAll(from, to, count, type, comm, stream);
}
