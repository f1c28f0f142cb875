/* doca_graph.h, doca_mmap_advise.h: tasks that wait for one another. */
#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_graph.h>
#include <doca_mmap.h>
#include <doca_mmap_advise.h>
#include <doca_pe.h>

#include "check.h"

enum { BYTES = 4096, STAGES = 4 };

static uint8_t memory[(STAGES + 1) * BYTES];
static int completed, failed, called, advised;
static doca_error_t wanted = DOCA_SUCCESS;

/* The callbacks of a task are not called when a graph submits it. */
static void on_task(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task;
	(void)task_data;
	(void)ctx_data;
	CHECK(!"the graph gets the end of a task, not the program");
}

static void on_completed(struct doca_graph_instance *instance, union doca_data instance_data, union doca_data graph_data)
{
	CHECK(instance != NULL && instance_data.u64 == 7 && graph_data.u64 == 8);
	completed++;
}

static void on_failed(struct doca_graph_instance *instance, union doca_data instance_data, union doca_data graph_data)
{
	CHECK(instance != NULL && instance_data.u64 == 7 && graph_data.u64 == 8);
	failed++;
}

/* A function of the graph. When it runs, the first two copies are done, and the copy that waits for this function is not. */
static doca_error_t between(void *cookie)
{
	CHECK(cookie == memory);
	CHECK(memcmp(memory, memory + BYTES, BYTES) == 0 && memcmp(memory, memory + 2 * BYTES, BYTES) == 0);
	CHECK(memory[3 * BYTES] == 0);
	called++;
	return wanted;
}

static void on_invalidated(struct doca_mmap_advise_task_invalidate_cache *task, union doca_data task_data,
	union doca_data ctx_data)
{
	(void)ctx_data;
	CHECK(task_data.u64 == 11);
	OK(doca_task_get_status(doca_mmap_advise_task_invalidate_cache_as_doca_task(task)));
	advised++;
}

static struct doca_dev *dev;
static struct doca_pe *pe;
static struct doca_mmap *mmap;
static struct doca_buf_inventory *inventory;
static struct doca_dma *dma;

/* Makes a task that copies the first piece of the memory to the piece `stage`. */
static struct doca_task *copy_to(int stage)
{
	struct doca_dma_task_memcpy *task;
	struct doca_buf *src, *dst;
	union doca_data data = { 0 };

	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, memory, BYTES, &src));
	OK(doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory + stage * BYTES, BYTES, &dst));
	OK(doca_dma_task_memcpy_alloc_init(dma, src, dst, data, &task));
	return doca_dma_task_memcpy_as_task(task);
}

/* Empties the destination, because a copy appends to its data. */
static void rewind_task(struct doca_task *task)
{
	OK(doca_buf_reset_data_len(doca_dma_task_memcpy_get_dst((struct doca_dma_task_memcpy *)task)));
}

static void free_task(struct doca_task *task)
{
	struct doca_dma_task_memcpy *copy = (struct doca_dma_task_memcpy *)task;

	OK(doca_buf_dec_refcount((struct doca_buf *)doca_dma_task_memcpy_get_src(copy), NULL));
	OK(doca_buf_dec_refcount(doca_dma_task_memcpy_get_dst(copy), NULL));
	doca_task_free(task);
}

static void reset(void)
{
	memset(memory, 0x5a, BYTES);
	memset(memory + BYTES, 0, STAGES * BYTES);
	completed = failed = called = 0;
}

static void drain(void)
{
	while (doca_pe_progress(pe) != 0)
		continue;
}

static struct doca_graph *make(void)
{
	struct doca_graph *graph;
	union doca_data data;

	OK(doca_graph_create(pe, &graph));
	IS(DOCA_ERROR_INVALID_VALUE, doca_graph_set_conf(graph, on_completed, NULL, 1));
	OK(doca_graph_set_conf(graph, on_completed, on_failed, 2));
	data.u64 = 8;
	OK(doca_graph_set_user_data(graph, data));
	return graph;
}

static struct doca_graph_instance *instantiate(struct doca_graph *graph)
{
	struct doca_graph_instance *instance;
	union doca_data data;

	OK(doca_graph_instance_create(graph, &instance));
	data.u64 = 7;
	OK(doca_graph_instance_set_user_data(instance, data));
	OK(doca_graph_instance_get_user_data(instance, &data));
	CHECK(data.u64 == 7);
	return instance;
}

static void graphs(void)
{
	struct doca_graph_node *first, *second, *user, *last, *inner, *after;
	struct doca_graph_instance *instance, *other, *none, *outer;
	struct doca_graph *graph, *whole;
	struct doca_task *tasks[STAGES + 1];

	for (int i = 1; i <= STAGES; i++)
		tasks[i] = copy_to(i);

	/* Two copies, a function that waits for both, and a copy that waits for the function. */
	graph = make();
	IS(DOCA_ERROR_BAD_STATE, doca_graph_start(graph));
	OK(doca_graph_node_create_from_user(graph, between, &user));
	IS(DOCA_ERROR_BAD_STATE, doca_graph_start(graph));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &first));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &second));
	OK(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &last));
	OK(doca_graph_add_dependency(graph, first, user));
	OK(doca_graph_add_dependency(graph, second, user));
	OK(doca_graph_add_dependency(graph, user, last));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_graph_add_dependency(graph, last, first));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_graph_add_dependency(graph, user, user));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_graph_node_create_from_graph(graph, graph, &inner));
	IS(DOCA_ERROR_BAD_STATE, doca_graph_instance_create(graph, &instance));
	OK(doca_graph_start(graph));
	OK(doca_graph_start(graph));
	IS(DOCA_ERROR_BAD_STATE, doca_graph_add_dependency(graph, first, second));
	IS(DOCA_ERROR_BAD_STATE, doca_graph_node_create_from_user(graph, between, &user));
	IS(DOCA_ERROR_BAD_STATE, doca_graph_destroy(graph));

	instance = instantiate(graph);
	OK(doca_graph_instance_create(graph, &other));
	IS(DOCA_ERROR_NO_MEMORY, doca_graph_instance_create(graph, &none));
	OK(doca_graph_instance_destroy(other));
	OK(doca_graph_instance_set_ctx_node_data(instance, first, tasks[1]));
	IS(DOCA_ERROR_INVALID_VALUE, doca_graph_instance_submit(instance));
	OK(doca_graph_instance_set_ctx_node_data(instance, second, tasks[2]));
	OK(doca_graph_instance_set_ctx_node_data(instance, last, tasks[3]));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_graph_instance_set_ctx_node_data(instance, user, tasks[3]));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_graph_instance_set_user_node_data(instance, last, memory));
	OK(doca_graph_instance_set_user_node_data(instance, user, memory));
	for (int i = 1; i <= 3; i++) {
		reset();
		OK(doca_graph_instance_submit(instance));
		IS(DOCA_ERROR_IN_USE, doca_graph_instance_submit(instance));
		IS(DOCA_ERROR_IN_USE, doca_graph_instance_destroy(instance));
		IS(DOCA_ERROR_BAD_STATE, doca_graph_instance_set_user_node_data(instance, user, memory));
		drain();
		CHECK(completed == 1 && failed == 0 && called == 1);
		CHECK(memory[3 * BYTES] == 0x5a && memory[4 * BYTES - 1] == 0x5a);
		for (int k = 1; k <= 3; k++)
			rewind_task(tasks[k]);
	}

	/* Nodes that wait for a failed node do not begin. */
	reset();
	wanted = DOCA_ERROR_UNEXPECTED;
	OK(doca_graph_instance_submit(instance));
	drain();
	CHECK(completed == 0 && failed == 1 && called == 1 && memory[3 * BYTES] == 0);
	wanted = DOCA_SUCCESS;
	rewind_task(tasks[1]);
	rewind_task(tasks[2]);

	/* The whole graph is one node of another graph. */
	OK(doca_graph_create(pe, &whole));
	OK(doca_graph_set_conf(whole, on_completed, on_failed, 1));
	union doca_data data;

	data.u64 = 8;
	OK(doca_graph_set_user_data(whole, data));
	OK(doca_graph_node_create_from_graph(whole, graph, &inner));
	OK(doca_graph_node_create_from_ctx(whole, doca_dma_as_ctx(dma), &after));
	OK(doca_graph_add_dependency(whole, inner, after));
	OK(doca_graph_start(whole));
	outer = instantiate(whole);
	OK(doca_graph_instance_set_sub_graph_node_data(outer, inner, instance));
	OK(doca_graph_instance_set_ctx_node_data(outer, after, tasks[4]));
	IS(DOCA_ERROR_IN_USE, doca_graph_instance_destroy(instance));
	reset();
	OK(doca_graph_instance_submit(outer));
	drain();
	CHECK(completed == 1 && failed == 0 && called == 1);
	CHECK(memory[3 * BYTES] == 0x5a && memory[4 * BYTES] == 0x5a);
	IS(DOCA_ERROR_IN_USE, doca_graph_stop(whole));
	OK(doca_graph_instance_destroy(outer));
	OK(doca_graph_stop(whole));
	OK(doca_graph_destroy(whole));
	for (int k = 1; k <= 4; k++)
		rewind_task(tasks[k]);

	/* A task whose destination is too small stops its context, and the graph instance fails. */
	reset();
	OK(doca_buf_set_data(doca_dma_task_memcpy_get_dst((struct doca_dma_task_memcpy *)tasks[2]), memory + 2 * BYTES, 1));
	OK(doca_graph_instance_submit(instance));
	drain();
	CHECK(completed == 0 && failed == 1 && called == 0);
	IS(DOCA_ERROR_BAD_STATE, doca_graph_instance_submit(instance));
	OK(doca_graph_instance_destroy(instance));
	OK(doca_graph_stop(graph));
	OK(doca_graph_stop(graph));
	OK(doca_graph_destroy(graph));
	for (int i = 1; i <= STAGES; i++)
		free_task(tasks[i]);
	drain();
}

static void invalidate(void)
{
	struct doca_mmap_advise_task_invalidate_cache *task;
	struct doca_mmap_advise *advise;
	struct doca_buf *buf;
	union doca_data data;
	uint64_t size = 0;

	OK(doca_mmap_advise_cap_task_cache_invalidate_is_supported(doca_dev_as_devinfo(dev)));
	OK(doca_mmap_advise_task_cache_invalidate_get_max_buf_size(doca_dev_as_devinfo(dev), &size));
	CHECK(size >= BYTES);
	OK(doca_mmap_advise_create(dev, &advise));
	OK(doca_pe_connect_ctx(pe, doca_mmap_advise_as_ctx(advise)));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_advise_task_invalidate_cache_set_conf(advise, on_invalidated, NULL, 1));
	OK(doca_mmap_advise_task_invalidate_cache_set_conf(advise, on_invalidated, on_invalidated, 1));
	OK(doca_ctx_start(doca_mmap_advise_as_ctx(advise)));
	IS(DOCA_ERROR_NOT_PERMITTED,
		doca_mmap_advise_task_invalidate_cache_set_conf(advise, on_invalidated, on_invalidated, 1));
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, memory, BYTES, &buf));
	data.u64 = 11;
	OK(doca_mmap_advise_task_invalidate_cache_alloc_init(advise, buf, data, &task));
	CHECK(doca_mmap_advise_task_invalidate_cache_get_buf(task) == buf);
	OK(doca_task_submit(doca_mmap_advise_task_invalidate_cache_as_doca_task(task)));
	CHECK(advised == 0);
	drain();
	CHECK(advised == 1);
	doca_task_free(doca_mmap_advise_task_invalidate_cache_as_doca_task(task));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_ctx_stop(doca_mmap_advise_as_ctx(advise)));
	OK(doca_mmap_advise_destroy(advise));
}

int main(void)
{
	/* The context accepts one task at a time. The graph submits a refused task again. */
	CHECK(setenv("DOCA_EMU", "queue_depth = 1", 1) == 0);
	dev = open_device(DPU);
	OK(doca_pe_create(&pe));
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_start(mmap));
	OK(doca_buf_inventory_create(2 * STAGES + 1, &inventory));
	OK(doca_buf_inventory_start(inventory));
	OK(doca_dma_create(dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, on_task, on_task, STAGES));
	OK(doca_pe_connect_ctx(pe, doca_dma_as_ctx(dma)));
	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	invalidate();
	graphs();
	(void)doca_ctx_stop(doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(dev));
	return 0;
}
