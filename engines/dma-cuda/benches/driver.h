/* The calls of CUDA's driver API that `instructions.c` makes, as in NVIDIA's public reference. */
#include <stddef.h>
#include <stdint.h>

typedef uint64_t CUdeviceptr;
typedef void *handle;

struct attributes {
	int order, src[2], dst[2];
	unsigned flags;
};

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(handle *context, int device);
int cuCtxPushCurrent_v2(handle context);
int cuStreamCreate(handle *stream, unsigned flags);
int cuEventCreate(handle *event, unsigned flags);
int cuEventRecord(handle event, handle stream);
int cuEventQuery(handle event);
int cuMemHostAlloc(void **to, size_t len, unsigned flags);
int cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *lens, size_t number, struct attributes *attributes,
	size_t *firsts, size_t kinds, handle stream);
