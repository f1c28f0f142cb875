/* doca_ctx.h, doca_pe.h, doca_dma.h: copies, their states, waiting by file descriptor, and a fatal error. */
#include <poll.h>

#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#include "check.h"

enum { TASKS = 8, SIZE = 4096 };

static unsigned char source[TASKS * SIZE], target[TASKS * SIZE];
static int completed, failed, resubmits;
static enum doca_ctx_states last_state = DOCA_CTX_STATE_IDLE;
static int changes;

static void on_completed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	CHECK(ctx_data.u64 == 77);
	CHECK(task_data.u64 < TASKS);
	OK(doca_task_get_status(doca_dma_task_memcpy_as_task(task)));
	completed++;
	if (resubmits > 0) {
		resubmits--;
		OK(doca_buf_reset_data_len(doca_dma_task_memcpy_get_dst(task)));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	}
}

static void on_failed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	CHECK(doca_task_get_status(doca_dma_task_memcpy_as_task(task)) != DOCA_SUCCESS);
	failed++;
	doca_task_free(doca_dma_task_memcpy_as_task(task));
}

static void on_state(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states before,
	enum doca_ctx_states after)
{
	CHECK(data.u64 == 77 && ctx != NULL && before == last_state);
	last_state = after;
	changes++;
}

int main(void)
{
	struct doca_dev *dev = open_device(DPU);
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_mmap *mmaps[2];
	struct doca_buf_inventory *inventory;
	struct doca_buf *from[TASKS], *to[TASKS], *near, *nearer;
	struct doca_dma_task_memcpy *tasks[TASKS], *none;
	union doca_data data;
	size_t in_flight = 0;
	uint32_t max = 0;
	doca_notification_handle_t handle;

	OK(doca_pe_create(&pe));
	OK(doca_dma_create(dev, &dma));
	IS(DOCA_ERROR_INVALID_VALUE, doca_dma_create(NULL, &dma));
	ctx = doca_dma_as_ctx(dma);
	data.u64 = 77;
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_ctx_set_state_changed_cb(ctx, on_state));
	OK(doca_dma_cap_get_max_num_tasks(dma, &max));
	CHECK(max >= TASKS);
	IS(DOCA_ERROR_INVALID_VALUE, doca_dma_task_memcpy_set_conf(dma, NULL, on_failed, TASKS));
	OK(doca_dma_task_memcpy_set_conf(dma, on_completed, on_failed, TASKS));
	IS(DOCA_ERROR_NOT_CONNECTED, doca_ctx_start(ctx));
	OK(doca_pe_connect_ctx(pe, ctx));
	IS(DOCA_ERROR_IN_USE, doca_pe_destroy(pe));
	OK(doca_ctx_start(ctx));
	CHECK(last_state == DOCA_CTX_STATE_RUNNING);
	IS(DOCA_ERROR_BAD_STATE, doca_dma_task_memcpy_set_conf(dma, on_completed, on_failed, TASKS));
	IS(DOCA_ERROR_IN_USE, doca_dma_destroy(dma));

	for (int i = 0; i < 2; i++) {
		OK(doca_mmap_create(&mmaps[i]));
		OK(doca_mmap_set_memrange(mmaps[i], i == 0 ? source : target, sizeof(source)));
		OK(doca_mmap_set_permissions(mmaps[i],
			i == 0 ? DOCA_ACCESS_FLAG_LOCAL_READ_ONLY : DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
		OK(doca_mmap_add_dev(mmaps[i], dev));
		OK(doca_mmap_start(mmaps[i]));
	}
	OK(doca_buf_inventory_create(2 * TASKS + 2, &inventory));
	OK(doca_buf_inventory_start(inventory));
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (unsigned char)(i * 31 + i / 257);
	for (int i = 0; i < TASKS; i++) {
		OK(doca_buf_inventory_buf_get_by_data(inventory, mmaps[0], source + i * SIZE, SIZE, &from[i]));
		OK(doca_buf_inventory_buf_get_by_addr(inventory, mmaps[1], target + i * SIZE, SIZE, &to[i]));
		data.u64 = (uint64_t)i;
		OK(doca_dma_task_memcpy_alloc_init(dma, from[i], to[i], data, &tasks[i]));
		CHECK(doca_task_get_ctx(doca_dma_task_memcpy_as_task(tasks[i])) == ctx);
	}
	IS(DOCA_ERROR_NO_MEMORY, doca_dma_task_memcpy_alloc_init(dma, from[0], to[0], data, &none));

	/* A batch with one doorbell. Only the last task is submitted for a report of its own. */
	for (int i = 0; i < TASKS; i++)
		OK(doca_task_submit_ex(doca_dma_task_memcpy_as_task(tasks[i]),
			i + 1 < TASKS ? (uint32_t)DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS : (uint32_t)DOCA_TASK_SUBMIT_FLAG_FLUSH));
	OK(doca_pe_get_num_inflight_tasks(pe, &in_flight));
	CHECK(in_flight == TASKS);
	for (int i = 0; i < 1000000 && completed < TASKS; i++)
		(void)doca_pe_progress(pe);
	CHECK(completed == TASKS && failed == 0);
	CHECK(memcmp(source, target, sizeof(source)) == 0);
	CHECK(doca_pe_progress(pe) == 0);

	/* A copy appends to the destination's data, so without a reset the destination has no room. */
	IS(DOCA_ERROR_INVALID_VALUE, doca_task_try_submit(doca_dma_task_memcpy_as_task(tasks[0])));

	/* A task is submitted again from its callback, and the program sleeps in between. */
	memset(target, 0, sizeof(target));
	completed = 0;
	resubmits = 99;
	OK(doca_pe_get_notification_handle(pe, &handle));
	OK(doca_buf_reset_data_len(to[1]));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[1])));
	while (completed < 100) {
		struct pollfd wait = { handle, POLLIN, 0 };

		OK(doca_pe_request_notification(pe));
		CHECK(poll(&wait, 1, 120000) == 1);
		OK(doca_pe_clear_notification(pe, handle));
		while (doca_pe_progress(pe))
			;
	}
	CHECK(completed == 100 && memcmp(source + SIZE, target + SIZE, SIZE) == 0 && target[0] == 0);

	/* Overlapping ranges: each byte is read before it is overwritten. */
	memcpy(target, source, 2 * SIZE);
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmaps[1], target, SIZE, &near));
	OK(doca_buf_inventory_buf_get_by_addr(inventory, mmaps[1], target + 1000, SIZE, &nearer));
	doca_dma_task_memcpy_set_src(tasks[1], near);
	doca_dma_task_memcpy_set_dst(tasks[1], nearer);
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[1])));
	while (completed < 101)
		(void)doca_pe_progress(pe);
	CHECK(memcmp(target + 1000, source, SIZE) == 0 && memcmp(target, source, 1000) == 0);
	doca_dma_task_memcpy_set_src(tasks[1], from[1]);
	doca_dma_task_memcpy_set_dst(tasks[1], to[1]);
	OK(doca_buf_dec_refcount(near, NULL));
	OK(doca_buf_dec_refcount(nearer, NULL));
	completed = 100;

	/* A copy without data is accepted, and is fatal in the engine. All other tasks fail too, and the context becomes idle by itself. */
	OK(doca_buf_reset_data_len(from[0]));
	for (int i = 0; i < TASKS; i++) {
		OK(doca_buf_reset_data_len(to[i]));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[i])));
	}
	for (int i = 0; i < 1000000 && last_state != DOCA_CTX_STATE_IDLE; i++) {
		(void)doca_pe_progress(pe);
		/* The program frees the tasks that completed before the failure. */
		if (last_state == DOCA_CTX_STATE_STOPPING && completed + failed == 100 + TASKS)
			for (int t = 0; t < TASKS; t++)
				if (doca_task_get_status(doca_dma_task_memcpy_as_task(tasks[t])) == DOCA_SUCCESS)
					doca_task_free(doca_dma_task_memcpy_as_task(tasks[t]));
	}
	CHECK(failed >= 1 && last_state == DOCA_CTX_STATE_IDLE);

	/* The context can be started again. */
	OK(doca_ctx_start(ctx));
	completed = failed = 0;
	OK(doca_buf_set_data(from[0], source, SIZE));
	OK(doca_buf_reset_data_len(to[0]));
	data.u64 = 0;
	OK(doca_dma_task_memcpy_alloc_init(dma, from[0], to[0], data, &tasks[0]));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[0])));
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(ctx));
	for (int i = 0; i < 1000000 && completed + failed == 0; i++)
		(void)doca_pe_progress(pe);
	CHECK(completed + failed == 1);
	if (completed == 1)
		doca_task_free(doca_dma_task_memcpy_as_task(tasks[0]));
	for (int i = 0; i < 1000000 && last_state != DOCA_CTX_STATE_IDLE; i++)
		(void)doca_pe_progress(pe);
	CHECK(last_state == DOCA_CTX_STATE_IDLE);
	OK(doca_ctx_stop(ctx));

	for (int i = 0; i < TASKS; i++) {
		OK(doca_buf_dec_refcount(from[i], NULL));
		OK(doca_buf_dec_refcount(to[i], NULL));
	}
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(mmaps[0]));
	OK(doca_mmap_destroy(mmaps[1]));
	OK(doca_dev_close(dev));
	return 0;
}
