/* doca_sync_event.h: threads, tasks, and another process. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_sync_event.h>

#include "check.h"

enum { TURNS = 2000 };

static int completed, failed;

static void on_task(struct doca_task *task)
{
	if (doca_task_get_status(task) == DOCA_SUCCESS)
		completed++;
	else
		failed++;
	doca_task_free(task);
}

#define CALLBACK(kind) \
	static void on_##kind(struct doca_sync_event_task_##kind *task, union doca_data task_data, \
		union doca_data ctx_data) \
	{ \
		CHECK(task_data.u64 == 3 && ctx_data.u64 == 4); \
		on_task(doca_sync_event_task_##kind##_as_doca_task(task)); \
	}

CALLBACK(get)
CALLBACK(notify_set)
CALLBACK(notify_add)
CALLBACK(wait_eq)
CALLBACK(wait_neq)

/* Waits for odd numbers, and makes them even. */
static void *other_thread(void *arg)
{
	struct doca_sync_event *event = (struct doca_sync_event *)arg;
	uint64_t fetched = 0;

	for (uint64_t i = 0; i < TURNS; i++) {
		OK(doca_sync_event_wait_eq_yield(event, 2 * i + 1, UINT64_MAX));
		OK(doca_sync_event_update_add(event, 1, &fetched));
		CHECK(fetched == 2 * i + 1);
	}
	return NULL;
}

static struct doca_sync_event *make(struct doca_dev *dev)
{
	struct doca_sync_event *event;

	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
	return event;
}

static void alone(struct doca_dev *dev)
{
	struct doca_sync_event *event;
	uint64_t value = 9, fetched = 9;
	pthread_t thread;

	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_create(NULL));
	OK(doca_sync_event_create(&event));
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_start(event));
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_get(event, &value));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_add_publisher_location_cpu(event, NULL));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_sync_event_add_publisher_location_remote_net(event));
	OK(doca_sync_event_destroy(event));

	event = make(dev);
	OK(doca_sync_event_start(event));
	CHECK(doca_sync_event_as_ctx(event) == NULL);
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_start(event));
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_add_publisher_location_cpu(event, dev));
	IS(DOCA_ERROR_IN_USE, doca_sync_event_destroy(event));
	OK(doca_sync_event_get(event, &value));
	CHECK(value == 0);
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_get(event, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_update_add(event, 1, NULL));
	OK(doca_sync_event_update_set(event, 0x1234));
	OK(doca_sync_event_update_add(event, 1, &fetched));
	CHECK(fetched == 0x1234);
	OK(doca_sync_event_wait_eq(event, 0x35, 0xff));
	OK(doca_sync_event_wait_neq(event, 0x35, 0xff00));
	OK(doca_sync_event_wait_gt(event, 0x1234, UINT64_MAX));
	OK(doca_sync_event_wait_gt_yield(event, 0x11, 0xff));
	OK(doca_sync_event_wait_neq_yield(event, 0, UINT64_MAX));

	OK(doca_sync_event_update_set(event, 0));
	CHECK(pthread_create(&thread, NULL, other_thread, event) == 0);
	for (uint64_t i = 0; i < TURNS; i++) {
		OK(doca_sync_event_update_set(event, 2 * i + 1));
		OK(doca_sync_event_wait_eq_yield(event, 2 * i + 2, UINT64_MAX));
	}
	CHECK(pthread_join(thread, NULL) == 0);
	OK(doca_sync_event_stop(event));
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_stop(event));
	OK(doca_sync_event_destroy(event));
}

static void own_memory(struct doca_dev *dev)
{
	static uint64_t numbers[2] = { 41, 7 };
	struct doca_sync_event *event = make(dev);
	struct doca_mmap *mmap;
	struct doca_buf_inventory *inventory;
	struct doca_buf *buf;
	const uint8_t *blob;
	uint64_t value = 0;
	size_t size;

	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_set_addr(event, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_set_addr(event, (uint64_t *)(void *)((char *)numbers + 1)));
	/* The number cannot be moved after an export, because the other side would use the previous address. */
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_export_to_remote_pci(event, dev, &blob, &size));
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_set_addr(event, &numbers[0]));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_add(event, 1, &value));
	CHECK(value == 41 && numbers[0] == 42);
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_set_addr(event, &numbers[1]));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_sync_event_export_to_remote_pci(event, dev, &blob, &size));
	OK(doca_sync_event_stop(event));

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, numbers, sizeof(numbers)));
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_start(mmap));
	OK(doca_buf_inventory_create(1, &inventory));
	OK(doca_buf_inventory_start(inventory));
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, numbers, 16, &buf));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_set_doca_buf(event, buf));
	OK(doca_buf_set_data(buf, &numbers[1], 8));
	OK(doca_sync_event_set_doca_buf(event, buf));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_set(event, 8));
	CHECK(numbers[1] == 8);
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_destroy(event));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(mmap));
}

static struct doca_ctx *as_context(struct doca_sync_event *event, struct doca_pe *pe)
{
	struct doca_ctx *ctx = doca_sync_event_as_ctx(event);
	union doca_data data;

	CHECK(ctx != NULL);
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_start(event));
	data.u64 = 4;
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_pe_connect_ctx(pe, ctx));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_task_get_set_conf(event, NULL, on_get, 1));
	OK(doca_sync_event_task_get_set_conf(event, on_get, on_get, 1));
	OK(doca_sync_event_task_notify_set_set_conf(event, on_notify_set, on_notify_set, 1));
	OK(doca_sync_event_task_notify_add_set_conf(event, on_notify_add, on_notify_add, 1));
	OK(doca_sync_event_task_wait_eq_set_conf(event, on_wait_eq, on_wait_eq, 2));
	OK(doca_sync_event_task_wait_neq_set_conf(event, on_wait_neq, on_wait_neq, 1));
	OK(doca_ctx_start(ctx));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_sync_event_task_get_set_conf(event, on_get, on_get, 1));
	return ctx;
}

static void tasks(struct doca_dev *dev)
{
	struct doca_sync_event *event = make(dev);
	struct doca_sync_event_task_get *get, *second;
	struct doca_sync_event_task_notify_set *set;
	struct doca_sync_event_task_notify_add *add;
	struct doca_sync_event_task_wait_eq *eq, *never;
	struct doca_sync_event_task_wait_neq *neq;
	struct doca_pe *pe;
	struct doca_ctx *ctx;
	union doca_data data;
	uint64_t value = 0, fetched = 0;

	OK(doca_pe_create(&pe));
	ctx = as_context(event, pe);
	data.u64 = 3;
	OK(doca_sync_event_task_wait_eq_alloc_init(event, 10, UINT64_MAX, data, &eq));
	OK(doca_sync_event_task_wait_eq_alloc_init(event, 99, 0xf0, data, &never));
	OK(doca_sync_event_task_wait_neq_alloc_init(event, 0, UINT64_MAX, data, &neq));
	OK(doca_sync_event_task_notify_set_alloc_init(event, 7, data, &set));
	OK(doca_sync_event_task_notify_add_alloc_init(event, 3, &fetched, data, &add));
	OK(doca_sync_event_task_get_alloc_init(event, &value, data, &get));
	IS(DOCA_ERROR_NO_MEMORY, doca_sync_event_task_get_alloc_init(event, &value, data, &second));
	CHECK(doca_sync_event_task_wait_eq_get_wait_val(eq) == 10);
	CHECK(doca_sync_event_task_wait_eq_get_mask(eq) == UINT64_MAX);
	CHECK(doca_sync_event_task_notify_set_get_set_val(set) == 7);
	CHECK(doca_sync_event_task_notify_add_get_inc_val(add) == 3);
	CHECK(doca_sync_event_task_notify_add_get_fetched_val_ptr(add) == &fetched);
	CHECK(doca_sync_event_task_get_get_ret_val_ptr(get) == &value);

	OK(doca_task_submit(doca_sync_event_task_wait_eq_as_doca_task(eq)));
	OK(doca_task_submit(doca_sync_event_task_wait_neq_as_doca_task(neq)));
	IS(DOCA_ERROR_INVALID_VALUE, doca_task_submit(doca_sync_event_task_wait_eq_as_doca_task(never)));
	doca_sync_event_task_wait_eq_set_mask(never, 0xff);
	OK(doca_task_submit(doca_sync_event_task_wait_eq_as_doca_task(never)));
	CHECK(doca_pe_progress(pe) == 0);
	OK(doca_task_submit(doca_sync_event_task_notify_set_as_doca_task(set)));
	while (doca_pe_progress(pe))
		;
	CHECK(completed == 2);
	OK(doca_task_submit(doca_sync_event_task_notify_add_as_doca_task(add)));
	OK(doca_task_submit(doca_sync_event_task_get_as_doca_task(get)));
	while (doca_pe_progress(pe))
		;
	CHECK(completed == 5 && failed == 0 && fetched == 7 && value == 10);

	/* A stop ends tasks that wait. */
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(ctx));
	while (doca_pe_progress(pe))
		;
	CHECK(completed == 5 && failed == 1);
	OK(doca_ctx_stop(ctx));
	OK(doca_sync_event_destroy(event));
	OK(doca_pe_destroy(pe));
}

/* The other process: answers each change by the next one, until the event is destroyed. */
static void importer(const uint8_t *blob, size_t size)
{
	struct doca_dev *dev = open_device(DPU);
	struct doca_sync_event *event;
	uint8_t altered[512];
	uint64_t value = 0;

	CHECK(size < sizeof(altered));
	memcpy(altered, blob, size);
	altered[size / 2] ^= 1;
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_create_from_export(dev, altered, size, &event));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_create_from_export(dev, blob, size - 1, &event));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_create_from_export(dev, NULL, size, &event));
	OK(doca_sync_event_create_from_export(dev, blob, size, &event));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_sync_event_add_publisher_location_cpu(event, dev));
	OK(doca_sync_event_start(event));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_sync_event_export_to_remote_pci(event, dev, &blob, &size));
	for (uint64_t i = 0; i < TURNS; i++) {
		OK(doca_sync_event_wait_eq_yield(event, 2 * i + 1, UINT64_MAX));
		OK(doca_sync_event_update_add(event, 1, &value));
	}
	/* The other process destroys the event, so this wait fails. */
	IS(DOCA_ERROR_IO_FAILED, doca_sync_event_wait_eq_yield(event, 0, UINT64_MAX));
	IS(DOCA_ERROR_IO_FAILED, doca_sync_event_get(event, &value));
	IS(DOCA_ERROR_IO_FAILED, doca_sync_event_update_set(event, 1));
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_destroy(event));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_create_from_export(dev, blob, size, &event));
	OK(doca_dev_close(dev));
}

static void exporter(int to)
{
	struct doca_dev *dev = open_device(HOST);
	struct doca_sync_event *event;
	const uint8_t *blob = NULL;
	size_t size = 0;

	OK(doca_sync_event_cap_is_export_to_remote_pci_supported(doca_dev_as_devinfo(dev)));
	OK(doca_sync_event_cap_is_create_from_export_supported(doca_dev_as_devinfo(dev)));
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_remote_pci(event));
	OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_export_to_remote_pci(event, dev, &blob, &size));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_export_to_remote_pci(event, dev, &blob, &size));
	CHECK(write(to, blob, size) == (ssize_t)size);
	for (uint64_t i = 0; i < TURNS; i++) {
		OK(doca_sync_event_update_set(event, 2 * i + 1));
		OK(doca_sync_event_wait_gt_yield(event, 2 * i + 1, UINT64_MAX));
	}
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

int main(void)
{
	struct doca_dev *dev;
	uint8_t blob[512];
	ssize_t size;
	int pipes[2], status;
	pid_t child;

	CHECK(pipe(pipes) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		exporter(pipes[1]);
		return 0;
	}
	/* Without this, the read would not end if the child has failed. */
	CHECK(close(pipes[1]) == 0);
	size = read(pipes[0], blob, sizeof(blob));
	CHECK(size > 0);
	importer(blob, (size_t)size);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

	dev = open_device(DPU);
	alone(dev);
	own_memory(dev);
	tasks(dev);
	OK(doca_dev_close(dev));
	return 0;
}
