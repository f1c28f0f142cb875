/* DOCA 1.5 and 2.2: maps, buffers, contexts, work queues, jobs, waiting by file descriptor, an export, and a fatal error. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_mmap.h>
#include <doca_version.h>

#include "check.h"

enum { DEPTH = 4, SIZE = 4096 };

static unsigned char source[DEPTH * SIZE], target[DEPTH * SIZE];
static int freed;

static void on_free(void *addr, size_t len, void *opaque)
{
	CHECK(addr == source && len == sizeof(source) && opaque == &freed);
	freed++;
}

static struct doca_mmap *map(struct doca_dev *dev, void *memory, size_t len, int frees)
{
	struct doca_mmap *mmap;
	doca_mmap_memrange_free_cb_t *free_cb = frees ? on_free : NULL;

	OK(doca_mmap_create(NULL, &mmap));
#if DOCA_VER_MAJOR < 2
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_dev_add(mmap, dev));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_populate(mmap, memory, len, 4096, free_cb, &freed));
	OK(doca_mmap_set_max_num_chunks(mmap, 2));
	OK(doca_mmap_start(mmap));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_populate(mmap, memory, len, 1000, free_cb, &freed));
	/* The memory is added before its device. */
	OK(doca_mmap_populate(mmap, memory, len, 4096, free_cb, &freed));
	/* Buffers can be made without a device, but while they exist, no device can be added. */
	{
		struct doca_buf_inventory *inventory;
		struct doca_buf *buf;
		uint16_t refs;

		OK(doca_buf_inventory_create(NULL, 1, DOCA_BUF_EXTENSION_NONE, &inventory));
		OK(doca_buf_inventory_start(inventory));
		OK(doca_buf_inventory_buf_by_addr(inventory, mmap, memory, len, &buf));
		IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_dev_add(mmap, dev));
		OK(doca_buf_refcount_rm(buf, &refs));
		OK(doca_buf_inventory_destroy(inventory));
	}
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_populate(mmap, (char *)memory + 1, 1, 4096, NULL, NULL));
	OK(doca_mmap_dev_add(mmap, dev));
#else
	OK(doca_mmap_dev_add(mmap, dev));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_start(mmap));
	OK(doca_mmap_set_memrange(mmap, memory, len));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_memrange(mmap, memory, len));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_LOCAL_READ_WRITE | DOCA_ACCESS_DPU_READ_WRITE));
	if (frees)
		OK(doca_mmap_set_free_cb(mmap, free_cb, &freed));
	OK(doca_mmap_start(mmap));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_dev_rm(mmap, dev));
#endif
	return mmap;
}

/* Submits a copy of the first len bytes of a buffer. */
static doca_error_t copy(struct doca_workq *workq, struct doca_ctx *ctx, struct doca_buf *src, struct doca_buf *dst, uint64_t number)
{
	struct doca_dma_job_memcpy job;

	memset(&job, 0, sizeof(job));
	job.base.type = DOCA_DMA_JOB_MEMCPY;
	job.base.flags = DOCA_JOB_FLAGS_NONE;
	job.base.ctx = ctx;
	job.base.user_data.u64 = number;
	job.src_buff = src;
	job.dst_buff = dst;
	return doca_workq_submit(workq, &job.base);
}

static doca_error_t next(struct doca_workq *workq, struct doca_event *event)
{
	doca_error_t result;

	do
		result = doca_workq_progress_retrieve(workq, event, DOCA_WORKQ_RETRIEVE_FLAGS_NONE);
	while (result == DOCA_ERROR_AGAIN);
	return result;
}

static void exports(void)
{
	struct doca_dev *host = open_device(HOST), *dpu = open_device(DPU);
	struct doca_mmap *local = map(host, target, sizeof(target), 0), *remote;
	uint8_t flag = 0;
	size_t len = 0;

#if DOCA_VER_MAJOR < 2
	void *desc = NULL;

	OK(doca_devinfo_get_is_mmap_export_supported(doca_dev_as_devinfo(host), &flag));
	CHECK(flag == 1);
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_export(local, dpu, &desc, &len));
	OK(doca_mmap_export(local, host, &desc, &len));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_dev_add(local, dpu));
#else
	const void *desc = NULL;
	void *addr = NULL;
	size_t range = 0;

	OK(doca_devinfo_get_is_mmap_export_dpu_supported(doca_dev_as_devinfo(host), &flag));
	CHECK(flag == 1);
	IS(DOCA_ERROR_NOT_FOUND, doca_mmap_export_dpu(local, dpu, &desc, &len));
	OK(doca_mmap_export_dpu(local, host, &desc, &len));
#endif
	CHECK(desc != NULL && len > 0);
	OK(doca_mmap_get_exported(local, &flag));
	CHECK(flag == 1);
	OK(doca_mmap_create_from_export(NULL, desc, len, dpu, &remote));
	OK(doca_mmap_get_from_export(remote, &flag));
	CHECK(flag == 1);
#if DOCA_VER_MAJOR < 2
	free(desc);
#else
	OK(doca_mmap_get_memrange(remote, &addr, &range));
	CHECK(addr == target && range == sizeof(target));
#endif
	OK(doca_mmap_destroy(remote));
	OK(doca_mmap_destroy(local));
	OK(doca_dev_close(host));
	OK(doca_dev_close(dpu));
}

int main(void)
{
	struct doca_dev *dev = open_device(DPU);
	struct doca_mmap *from = map(dev, source, sizeof(source), 1), *to = map(dev, target, sizeof(target), 0);
	struct doca_buf_inventory *inventory;
	struct doca_buf *src[DEPTH], *dst[DEPTH], *near, *nearer, *none;
	struct doca_workq *workq;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_event event;
	doca_event_handle_t handle;
	uint8_t can = 0;
	uint32_t bufs = 0;
	size_t data_len = 0;

	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (unsigned char)(i * 7 + i / 256);
	IS(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_create(NULL, 2 * DEPTH, 2, &inventory));
	OK(doca_buf_inventory_create(NULL, 2 * DEPTH + 2, DOCA_BUF_EXTENSION_NONE, &inventory));
	OK(doca_buf_inventory_start(inventory));
	IS(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_buf_by_addr(inventory, from, source + 1, sizeof(source), &none));
	for (int i = 0; i < DEPTH; i++) {
		OK(doca_buf_inventory_buf_by_data(inventory, from, source + i * SIZE, SIZE, &src[i]));
		OK(doca_buf_inventory_buf_by_addr(inventory, to, target + i * SIZE, SIZE, &dst[i]));
	}
	OK(doca_mmap_get_num_bufs(from, &bufs));
	CHECK(bufs == DEPTH);
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_destroy(from));

	OK(doca_dma_job_get_supported(doca_dev_as_devinfo(dev), DOCA_DMA_JOB_MEMCPY));
	OK(doca_dma_create(&dma));
	ctx = doca_dma_as_ctx(dma);
	OK(doca_workq_create(DEPTH, &workq));
	IS(DOCA_ERROR_BAD_STATE, doca_ctx_workq_add(ctx, workq));
	IS(DOCA_ERROR_INVALID_VALUE, doca_ctx_start(ctx));
	OK(doca_ctx_dev_add(ctx, dev));
	IS(DOCA_ERROR_IN_USE, doca_ctx_dev_add(ctx, dev));
	OK(doca_ctx_start(ctx));
	IS(DOCA_ERROR_BAD_STATE, doca_ctx_dev_rm(ctx, dev));
	IS(DOCA_ERROR_NOT_FOUND, copy(workq, ctx, src[0], dst[0], 0));
	IS(DOCA_ERROR_BAD_STATE, doca_workq_get_event_handle(workq, &handle));
	OK(doca_ctx_get_event_driven_supported(ctx, &can));
	CHECK(can == 1);
	OK(doca_workq_set_event_driven_enable(workq, 1));
	OK(doca_ctx_workq_add(ctx, workq));
	IS(DOCA_ERROR_IN_USE, doca_ctx_workq_add(ctx, workq));
	IS(DOCA_ERROR_BAD_STATE, doca_workq_set_event_driven_enable(workq, 0));
	IS(DOCA_ERROR_AGAIN, doca_workq_progress_retrieve(workq, &event, DOCA_WORKQ_RETRIEVE_FLAGS_NONE));

	for (uint64_t i = 0; i < DEPTH; i++)
		OK(copy(workq, ctx, src[i], dst[i], i + 10));
	IS(DOCA_ERROR_NO_MEMORY, copy(workq, ctx, src[0], dst[0], 0));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_ctx_workq_rm(ctx, workq));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_ctx_stop(ctx));
	for (uint64_t seen = 0, i = 0; i < DEPTH; i++) {
		OK(next(workq, &event));
		CHECK(event.type == (int)DOCA_DMA_JOB_MEMCPY && event.result.u64 == DOCA_SUCCESS);
		CHECK(event.user_data.u64 >= 10 && event.user_data.u64 < 10 + DEPTH);
		seen |= UINT64_C(1) << event.user_data.u64;
		if (i + 1 == DEPTH)
			CHECK(seen == ((UINT64_C(1) << DEPTH) - 1) << 10);
	}
	CHECK(memcmp(source, target, sizeof(source)) == 0);
	OK(doca_buf_get_data_len(dst[0], &data_len));
	CHECK(data_len == SIZE);

	/* Sleeps on the event handle. */
	OK(doca_workq_get_event_handle(workq, &handle));
	OK(copy(workq, ctx, src[1], dst[0], 1));
	OK(doca_workq_event_handle_arm(workq));
	{
		struct pollfd waits = {handle, POLLIN, 0};

		CHECK(poll(&waits, 1, 120000) == 1);
	}
	OK(doca_workq_event_handle_clear(workq, handle));
	/* The destination had data, which the copy replaced. */
	OK(next(workq, &event));
	CHECK(event.user_data.u64 == 1 && event.result.u64 == DOCA_SUCCESS);
	CHECK(memcmp(source + SIZE, target, SIZE) == 0);
	OK(doca_buf_get_data_len(dst[0], &data_len));
	CHECK(data_len == SIZE);

	/* The destination has less room than the source has data: the device fails the job, and the context stops. */
	OK(doca_buf_inventory_buf_by_addr(inventory, to, target, SIZE / 2, &near));
	OK(copy(workq, ctx, src[1], near, 1));
	IS(DOCA_ERROR_IO_FAILED, next(workq, &event));
	CHECK(event.user_data.u64 == 1 && event.result.u64 != DOCA_SUCCESS);
	OK(doca_buf_refcount_rm(near, NULL));
	IS(DOCA_ERROR_BAD_STATE, copy(workq, ctx, src[2], dst[1], 2));
	OK(doca_ctx_workq_rm(ctx, workq));
	OK(doca_ctx_stop(ctx));
	OK(doca_ctx_start(ctx));
	OK(doca_ctx_workq_add(ctx, workq));
	OK(doca_buf_set_data(dst[0], target, 0));
	memset(target, 0, SIZE);
	OK(copy(workq, ctx, src[0], dst[0], 3));
	OK(next(workq, &event));
	CHECK(memcmp(source, target, SIZE) == 0);

	/* Overlapping ranges: each byte is read before it is overwritten. */
	OK(doca_buf_inventory_buf_by_data(inventory, to, target, SIZE, &near));
	OK(doca_buf_inventory_buf_by_addr(inventory, to, target + 1000, SIZE, &nearer));
	OK(copy(workq, ctx, near, nearer, 4));
	OK(next(workq, &event));
	CHECK(memcmp(target + 1000, source, SIZE) == 0 && memcmp(target, source, 1000) == 0);
	OK(doca_buf_refcount_rm(near, NULL));
	OK(doca_buf_refcount_rm(nearer, NULL));

	IS(DOCA_ERROR_IN_USE, doca_workq_destroy(workq));
	IS(DOCA_ERROR_IN_USE, doca_dma_destroy(dma));
	OK(doca_ctx_workq_rm(ctx, workq));
	IS(DOCA_ERROR_NOT_FOUND, doca_ctx_workq_rm(ctx, workq));
	OK(doca_workq_destroy(workq));
	OK(doca_ctx_stop(ctx));
	OK(doca_ctx_dev_rm(ctx, dev));
	OK(doca_dma_destroy(dma));
	for (int i = 0; i < DEPTH; i++) {
		uint16_t refs = 0;

		OK(doca_buf_refcount_rm(src[i], &refs));
		CHECK(refs == 1);
		OK(doca_buf_refcount_rm(dst[i], &refs));
	}
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(from));
	CHECK(freed == 1);
	OK(doca_mmap_destroy(to));
	OK(doca_dev_close(dev));
	exports();
	return 0;
}
