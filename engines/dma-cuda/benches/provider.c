/* A libcuda.so.1 for `instructions.rs`, whose device copies at once. For each copy it does the minimum work of a driver: it
 * writes a command to a ring. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { RING = 1024, BUSY = 600 };

static struct command {
	uint64_t dst, src, len;
} ring[RING];
static uint32_t head;

struct event {
	uint32_t recorded, done;
};

static _Thread_local handle stack[16];
static _Thread_local int pushed;

static void
copy(CUdeviceptr dst, CUdeviceptr src, size_t len)
{
	struct command *command = &ring[head++ % RING];

	command->dst = dst;
	command->src = src;
	command->len = len;
	memcpy((void *)command->dst, (void *)command->src, command->len);
}

/* The engine calls it for a copy that is alone. */
int
cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t len, handle stream)
{
	if (stream == NULL || pushed == 0) {
		return 1;
	}
	copy(dst, src, len);
	return 0;
}

int
cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *lens, size_t number, struct attributes *attributes,
	size_t *firsts, size_t kinds, handle stream)
{
	if (number == 0 || kinds != 1 || firsts[0] != 0 || attributes->order != 1 || stream == NULL || pushed == 0) {
		return 1;
	}
	for (size_t i = 0; i < number; i++) {
		copy(dsts[i], srcs[i], lens[i]);
	}
	return 0;
}

int
cuEventRecord(handle event, handle stream)
{
	((struct event *)event)->recorded = head;
	((struct event *)event)->done = head;
	return stream == NULL || pushed == 0;
}

int
cuEventQuery(handle event)
{
	return ((struct event *)event)->done == ((struct event *)event)->recorded ? 0 : BUSY;
}

int
cuCtxPushCurrent_v2(handle context)
{
	stack[pushed++ % 16] = context;
	return 0;
}

int
cuCtxPopCurrent_v2(handle *context)
{
	*context = stack[--pushed % 16];
	return 0;
}

static int
text(char *to, const char *from)
{
	strcpy(to, from);
	return 0;
}

static int
number(int *to, int value)
{
	*to = value;
	return 0;
}

static int
new(handle *to)
{
	*to = calloc(1, sizeof(struct event));
	return 0;
}

int cuInit(unsigned flags) { return flags != 0; }
int cuDriverGetVersion(int *version) { return number(version, 13000); }
int cuGetErrorName(int code, const char **name) { return *name = "none", code; }
int cuGetErrorString(int code, const char **name) { return *name = "none", code; }
int cuDeviceGetCount(int *count) { return number(count, 1); }
int cuDeviceGet(int *device, int ordinal) { return number(device, ordinal); }
int cuDeviceGetName(char *name, int room, int device) { return room < 8 || text(name, "a GPU") || device; }
int cuDeviceGetAttribute(int *value, int which, int device) { return (void)which, (void)device, number(value, 1); }
int cuDeviceGetPCIBusId(char *id, int room, int device) { return room < 13 || text(id, "0000:17:00.0") || device; }
int cuDevicePrimaryCtxRetain(handle *context, int device) { return new (context) || device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuStreamCreate(handle *stream, unsigned flags) { return new (stream) || flags != 1; }
int cuStreamDestroy_v2(handle stream) { return free(stream), 0; }
int cuStreamSynchronize(handle stream) { return stream == NULL; }
int cuStreamWaitEvent(handle stream, handle event, unsigned flags) { return stream == NULL || event == NULL || flags; }
int cuEventCreate(handle *event, unsigned flags) { return new (event) || flags != 2; }
int cuEventDestroy_v2(handle event) { return free(event), 0; }
int cuMemHostAlloc(void **to, size_t len, unsigned flags) { return *to = calloc(1, len), flags != 1; }
int cuMemFreeHost(void *memory) { return free(memory), 0; }

/* Calls that the engine looks up but the loop does not use. */
#define UNUSED(call) \
	int call(void) { return 801; }
UNUSED(cuMemAlloc_v2)
UNUSED(cuMemFree_v2)
UNUSED(cuMemHostRegister_v2)
UNUSED(cuMemHostUnregister)
UNUSED(cuPointerGetAttribute)
UNUSED(cuMemsetD8Async)
UNUSED(cuMemsetD16Async)
UNUSED(cuMemsetD32Async)
UNUSED(cuMemsetD2D32Async)
