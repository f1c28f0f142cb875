/* A C program that copies in batches of 32 on one stream, with which `instructions.rs` compares the engine. Its argument is the
 * number of batches. */
#include <stdlib.h>

#include "driver.h"

enum { BATCH = 32, LEN = 64, NOT_READY = 600 };

int
main(int argc, char **argv)
{
	long batches = argc > 1 ? atol(argv[1]) : 1;
	struct attributes attributes = {.order = 1};
	size_t lens[BATCH], first = 0;
	CUdeviceptr srcs[BATCH], dsts[BATCH];
	handle context, stream, event;
	void *src, *dst;

	if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxPushCurrent_v2(context) != 0 ||
	    cuStreamCreate(&stream, 1) != 0 || cuEventCreate(&event, 2) != 0 || cuMemHostAlloc(&src, BATCH * LEN, 1) != 0 ||
	    cuMemHostAlloc(&dst, BATCH * LEN, 1) != 0) {
		return 1;
	}
	for (long b = 0; b < batches; b++) {
		int code;

		for (int i = 0; i < BATCH; i++) {
			srcs[i] = (CUdeviceptr)src + i * LEN;
			dsts[i] = (CUdeviceptr)dst + i * LEN;
			lens[i] = LEN;
		}
		if (cuMemcpyBatchAsync_v2(dsts, srcs, lens, BATCH, &attributes, &first, 1, stream) != 0 ||
		    cuEventRecord(event, stream) != 0) {
			return 1;
		}
		while ((code = cuEventQuery(event)) == NOT_READY) {
		}
		if (code != 0) {
			return 1;
		}
	}
	return 0;
}
