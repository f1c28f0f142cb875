/* Copies by a fast C program. It makes tasks once, changes the addresses of both buffers for each copy, and rings one doorbell per 32 copies. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#define BATCH 32
#define SIZE 64

#define OK(call) \
	do { \
		doca_error_t result = (call); \
		if (result != DOCA_SUCCESS) { \
			fprintf(stderr, "%s: %s\n", #call, doca_error_get_name(result)); \
			exit(1); \
		} \
	} while (0)

struct done {
	uint64_t tokens[BATCH];
	uint64_t *completed;
	uint32_t count;
};

static void completed(struct doca_dma_task_memcpy *task, union doca_data user, union doca_data ctx)
{
	struct done *done = ctx.ptr;
	(void)task;
	done->completed[done->count++] = done->tokens[user.u64];
}

static void failed(struct doca_dma_task_memcpy *task, union doca_data user, union doca_data ctx)
{
	(void)task, (void)user, (void)ctx;
	fprintf(stderr, "a copy failed\n");
	exit(1);
}

static struct doca_mmap *map(struct doca_dev *dev, void *memory, size_t size)
{
	struct doca_mmap *map;
	OK(doca_mmap_create(&map));
	OK(doca_mmap_set_memrange(map, memory, size));
	OK(doca_mmap_set_permissions(map, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
	OK(doca_mmap_add_dev(map, dev));
	OK(doca_mmap_start(map));
	return map;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000;
	struct doca_devinfo **list;
	uint32_t count;
	struct doca_dev *dev;
	struct doca_dma *dma;
	struct doca_pe *pe;
	struct doca_buf_inventory *inventory;
	struct doca_task *tasks[BATCH];
	struct doca_buf *src[BATCH], *dst[BATCH];
	uint64_t out[BATCH];
	struct done done = {.completed = out};
	static char from[BATCH * SIZE], to[BATCH * SIZE];

	OK(doca_devinfo_create_list(&list, &count));
	OK(doca_dev_open(list[0], &dev));
	OK(doca_devinfo_destroy_list(list));
	OK(doca_dma_create(dev, &dma));
	struct doca_ctx *ctx = doca_dma_as_ctx(dma);
	union doca_data user = {.ptr = &done};
	OK(doca_ctx_set_user_data(ctx, user));
	OK(doca_dma_task_memcpy_set_conf(dma, completed, failed, BATCH));
	OK(doca_pe_create(&pe));
	OK(doca_pe_connect_ctx(pe, ctx));
	OK(doca_ctx_start(ctx));
	struct doca_mmap *src_map = map(dev, from, sizeof(from)), *dst_map = map(dev, to, sizeof(to));
	OK(doca_buf_inventory_create(2 * BATCH, &inventory));
	OK(doca_buf_inventory_start(inventory));
	for (uint64_t i = 0; i < BATCH; i++) {
		struct doca_dma_task_memcpy *task;
		union doca_data number = {.u64 = i};
		OK(doca_buf_inventory_buf_get_by_addr(inventory, src_map, from, sizeof(from), &src[i]));
		OK(doca_buf_inventory_buf_get_by_addr(inventory, dst_map, to, sizeof(to), &dst[i]));
		OK(doca_dma_task_memcpy_alloc_init(dma, src[i], dst[i], number, &task));
		tasks[i] = doca_dma_task_memcpy_as_task(task);
	}
	for (long round = 0; round < rounds; round++) {
		for (uint32_t i = 0; i < BATCH; i++) {
			uint32_t flags = i + 1 < BATCH ? DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS : DOCA_TASK_SUBMIT_FLAG_FLUSH;
			OK(doca_buf_set_data(src[i], from + i * SIZE, SIZE));
			OK(doca_buf_set_data(dst[i], to + i * SIZE, 0));
			done.tokens[i] = (uint64_t)round * BATCH + i;
			OK(doca_task_submit_ex(tasks[i], flags));
		}
		done.count = 0;
		while (done.count < BATCH)
			doca_pe_progress(pe);
	}
	for (int i = 0; i < BATCH; i++)
		doca_task_free(tasks[i]);
	doca_ctx_stop(ctx);
	while (doca_pe_progress(pe))
		;
	printf("%ld copies\n", rounds * BATCH);
	return 0;
}
