/* The program copies.c for DOCA 1.5 and 2.2. It makes jobs once, and changes the addresses of both buffers for each copy. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_mmap.h>
#include <doca_version.h>

#define BATCH 32
#define SIZE 64

#define OK(call) \
	do { \
		doca_error_t result = (call); \
		if (result != DOCA_SUCCESS) { \
			fprintf(stderr, "%s: %s\n", #call, doca_get_error_name(result)); \
			exit(1); \
		} \
	} while (0)

static struct doca_mmap *map(struct doca_dev *dev, void *memory, size_t size)
{
	struct doca_mmap *map;
	OK(doca_mmap_create(NULL, &map));
#if DOCA_VER_MAJOR < 2
	OK(doca_mmap_start(map));
	OK(doca_mmap_dev_add(map, dev));
	OK(doca_mmap_populate(map, memory, size, 4096, NULL, NULL));
#else
	OK(doca_mmap_dev_add(map, dev));
	OK(doca_mmap_set_memrange(map, memory, size));
	OK(doca_mmap_start(map));
#endif
	return map;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000;
	struct doca_devinfo **list;
	uint32_t count;
	struct doca_dev *dev;
	struct doca_dma *dma;
	struct doca_workq *workq;
	struct doca_buf_inventory *inventory;
	struct doca_dma_job_memcpy jobs[BATCH];
	struct doca_buf *src[BATCH], *dst[BATCH];
	uint64_t tokens[BATCH], out[BATCH];
	static char from[BATCH * SIZE], to[BATCH * SIZE];

	OK(doca_devinfo_list_create(&list, &count));
	OK(doca_dev_open(list[0], &dev));
	OK(doca_devinfo_list_destroy(list));
	OK(doca_dma_create(&dma));
	struct doca_ctx *ctx = doca_dma_as_ctx(dma);
	OK(doca_ctx_dev_add(ctx, dev));
	OK(doca_ctx_start(ctx));
	OK(doca_workq_create(BATCH, &workq));
	OK(doca_ctx_workq_add(ctx, workq));
	struct doca_mmap *src_map = map(dev, from, sizeof(from)), *dst_map = map(dev, to, sizeof(to));
	OK(doca_buf_inventory_create(NULL, 2 * BATCH, DOCA_BUF_EXTENSION_NONE, &inventory));
	OK(doca_buf_inventory_start(inventory));
	memset(jobs, 0, sizeof(jobs));
	for (uint64_t i = 0; i < BATCH; i++) {
		OK(doca_buf_inventory_buf_by_addr(inventory, src_map, from, sizeof(from), &src[i]));
		OK(doca_buf_inventory_buf_by_addr(inventory, dst_map, to, sizeof(to), &dst[i]));
		jobs[i].base.type = DOCA_DMA_JOB_MEMCPY;
		jobs[i].base.ctx = ctx;
		jobs[i].base.user_data.u64 = i;
		jobs[i].src_buff = src[i];
		jobs[i].dst_buff = dst[i];
	}
	for (long round = 0; round < rounds; round++) {
		for (uint32_t i = 0; i < BATCH; i++) {
			OK(doca_buf_set_data(src[i], from + i * SIZE, SIZE));
			OK(doca_buf_set_data(dst[i], to + i * SIZE, 0));
			tokens[i] = (uint64_t)round * BATCH + i;
			OK(doca_workq_submit(workq, &jobs[i].base));
		}
		for (uint32_t done = 0; done < BATCH;) {
			struct doca_event event;
			doca_error_t result = doca_workq_progress_retrieve(workq, &event, DOCA_WORKQ_RETRIEVE_FLAGS_NONE);
			if (result == DOCA_ERROR_AGAIN)
				continue;
			OK(result);
			out[done++] = tokens[event.user_data.u64];
		}
	}
	OK(doca_ctx_workq_rm(ctx, workq));
	printf("%ld copies, the last %ld\n", rounds * BATCH, (long)out[BATCH - 1]);
	return 0;
}
