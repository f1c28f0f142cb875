/* doca_comch_producer.h, doca_comch_consumer.h: a consumer on the host, producers on the DPU, 2 processes. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_comch.h>
#include <doca_comch_consumer.h>
#include <doca_comch_producer.h>
#include <doca_ctx.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#include "check.h"

enum { STREAM = 1000, PAGE = 4096, TASKS = 8 };

static struct doca_comch_connection *peer;
static int disconnects, control_sent, control_received;
static uint32_t came, went;

static void on_sent(struct doca_comch_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	control_sent++;
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void on_message(struct doca_comch_event_msg_recv *event, uint8_t *buffer, uint32_t len,
	struct doca_comch_connection *connection)
{
	CHECK(event != NULL && len == 2 && memcmp(buffer, "go", 2) == 0 && connection == peer);
	control_received++;
}

static void on_connect(struct doca_comch_event_connection_status_changed *event,
	struct doca_comch_connection *connection, uint8_t successful)
{
	CHECK(event != NULL && successful == 1);
	peer = connection;
}

static void on_disconnect(struct doca_comch_event_connection_status_changed *event,
	struct doca_comch_connection *connection, uint8_t successful)
{
	CHECK(event != NULL && successful == 1 && connection == peer);
	disconnects++;
}

static void on_came(struct doca_comch_event_consumer *event, struct doca_comch_connection *connection, uint32_t id)
{
	CHECK(event != NULL && connection == peer);
	came = id;
}

static void on_went(struct doca_comch_event_consumer *event, struct doca_comch_connection *connection, uint32_t id)
{
	CHECK(event != NULL && connection == peer);
	went = id;
}

/* Makes progress until the condition holds, for at least two minutes. */
#define UNTIL(pe, condition) \
	do { \
		const struct timespec pause = { 0, 200000 }; \
		for (int tries = 0; !(condition) && tries < 600000; tries++) \
			if (doca_pe_progress(pe) == 0) \
				nanosleep(&pause, NULL); \
		CHECK(condition); \
	} while (0)

static enum doca_ctx_states state_of(struct doca_ctx *ctx)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(ctx, &state));
	return state;
}

static struct doca_mmap *map(struct doca_dev *dev, void *memory, size_t len, uint32_t access)
{
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, memory, len));
	OK(doca_mmap_set_permissions(mmap, access));
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_start(mmap));
	return mmap;
}

/* The side of the producers. */

static doca_error_t last_status;
static int ended;

static void on_delivered(struct doca_comch_producer_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	struct doca_task *base = doca_comch_producer_task_send_as_task(task);

	CHECK(ctx_data.u64 == 3 && task_data.u64 == doca_task_get_user_data(base).u64);
	last_status = doca_task_get_status(base);
	ended++;
}

static struct doca_comch_producer *produce(struct doca_pe *pe, uint32_t id)
{
	struct doca_comch_producer *producer;
	union doca_data data;
	uint32_t value = 0;

	OK(doca_comch_producer_create(peer, &producer));
	OK(doca_comch_producer_get_id(producer, &value));
	CHECK(value == id);
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_producer_task_send_set_conf(producer, NULL, on_delivered, 1));
	OK(doca_comch_producer_task_send_set_conf(producer, on_delivered, on_delivered, TASKS));
	data.u64 = 3;
	OK(doca_ctx_set_user_data(doca_comch_producer_as_ctx(producer), data));
	IS(DOCA_ERROR_NOT_CONNECTED, doca_ctx_start(doca_comch_producer_as_ctx(producer)));
	OK(doca_pe_connect_ctx(pe, doca_comch_producer_as_ctx(producer)));
	OK(doca_ctx_start(doca_comch_producer_as_ctx(producer)));
	return producer;
}

/* Submits a task, and repeats that until the consumer has a buffer posted. Does not make progress meanwhile. */
static doca_error_t submit(struct doca_task *task)
{
	const struct timespec pause = { 0, 100000 };
	doca_error_t result;

	while ((result = doca_task_submit(task)) == DOCA_ERROR_AGAIN)
		nanosleep(&pause, NULL);
	return result;
}

/* Submits a task with these arguments, waits for its end and frees it. Returns the task's result. */
static doca_error_t send_to(struct doca_comch_producer *producer, struct doca_pe *pe, struct doca_buf *buf, const char *imm,
	uint32_t consumer)
{
	struct doca_comch_producer_task_send *task;
	uint8_t bytes[64];
	uint32_t len = imm == NULL ? 0 : (uint32_t)strlen(imm);
	int before = ended;
	doca_error_t result;

	if (imm != NULL)
		memcpy(bytes, imm, len);
	OK(doca_comch_producer_task_send_alloc_init(producer, buf, bytes, len, consumer, &task));
	/* The task has its own copy of the immediate data. */
	memset(bytes, 0, sizeof(bytes));
	CHECK(doca_comch_producer_task_send_get_buf(task) == buf);
	CHECK(doca_comch_producer_task_send_get_consumer_id(task) == consumer);
	CHECK(doca_comch_producer_task_send_get_imm_data_len(task) == len);
	if (len > 0)
		CHECK(memcmp(doca_comch_producer_task_send_get_imm_data(task), imm, len) == 0);
	result = submit(doca_comch_producer_task_send_as_task(task));
	if (result == DOCA_SUCCESS) {
		UNTIL(pe, ended == before + 1);
		result = last_status;
	}
	doca_task_free(doca_comch_producer_task_send_as_task(task));
	return result;
}

struct stream {
	struct doca_dev *dev;
	uint32_t consumer;
};

/* A producer on a thread of its own. It sends pages as fast as the consumer posts buffers. */
static void *stream(void *argument)
{
	struct stream *it = (struct stream *)argument;
	uint8_t *pages = (uint8_t *)malloc(TASKS * PAGE);
	struct doca_comch_producer_task_send *task;
	struct doca_buf_inventory *inventory;
	struct doca_comch_producer *producer;
	struct doca_mmap *mmap;
	struct doca_buf *buf;
	struct doca_pe *pe;

	CHECK(pages != NULL);
	OK(doca_pe_create(&pe));
	producer = produce(pe, 2);
	mmap = map(it->dev, pages, TASKS * PAGE, DOCA_ACCESS_FLAG_PCI_READ_ONLY);
	OK(doca_buf_inventory_create(1, &inventory));
	OK(doca_buf_inventory_start(inventory));
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, pages, PAGE, &buf));
	OK(doca_comch_producer_task_send_alloc_init(producer, buf, NULL, 0, 99, &task));
	doca_comch_producer_task_send_set_consumer_id(task, it->consumer);
	for (int i = 0; i < STREAM; i++) {
		int before = ended;

		memset(pages, i, PAGE);
		OK(submit(doca_comch_producer_task_send_as_task(task)));
		UNTIL(pe, ended == before + 1);
		CHECK(last_status == DOCA_SUCCESS);
	}
	doca_task_free(doca_comch_producer_task_send_as_task(task));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_ctx_stop(doca_comch_producer_as_ctx(producer)));
	OK(doca_comch_producer_destroy(producer));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(mmap));
	OK(doca_pe_destroy(pe));
	free(pages);
	return NULL;
}

static void serve(const char *name, int started)
{
	static char text[256] = "hello, host: twenty!";
	struct doca_dev *dev = open_device(DPU);
	struct doca_dev_rep *rep = open_representor(dev, HOST);
	struct doca_comch_producer_task_send *held;
	struct doca_comch_task_send *message;
	struct doca_buf_inventory *inventory;
	struct doca_comch_producer *producer;
	struct doca_comch_server *server;
	struct doca_buf *buf, *rest;
	struct doca_mmap *mmap;
	struct stream streamed;
	struct doca_pe *pe, *pe2;
	struct doca_ctx *ctx;
	uint32_t value = 0;
	uint8_t imm[64] = { 0 };
	pthread_t thread;

	OK(doca_comch_producer_cap_is_supported(doca_dev_as_devinfo(dev)));
	OK(doca_comch_producer_cap_get_max_num_tasks(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= TASKS);
	OK(doca_comch_producer_cap_get_max_buf_size(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= PAGE);
	OK(doca_comch_producer_cap_get_max_buf_list_len(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= 2);
	OK(doca_comch_producer_cap_get_max_producers(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= 2);

	OK(doca_pe_create(&pe));
	OK(doca_comch_server_create(dev, rep, name, &server));
	OK(doca_comch_server_task_send_set_conf(server, on_sent, on_sent, TASKS));
	OK(doca_comch_server_event_msg_recv_register(server, on_message));
	OK(doca_comch_server_event_connection_status_changed_register(server, on_connect, on_disconnect));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_event_consumer_register(server, on_came, NULL));
	OK(doca_comch_server_event_consumer_register(server, on_came, on_went));
	OK(doca_pe_connect_ctx(pe, doca_comch_server_as_ctx(server)));
	OK(doca_ctx_start(doca_comch_server_as_ctx(server)));
	CHECK(write(started, "", 1) == 1 && close(started) == 0);
	UNTIL(pe, came == 1);

	OK(doca_pe_create(&pe2));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_producer_create(NULL, &producer));
	producer = produce(pe2, 1);
	ctx = doca_comch_producer_as_ctx(producer);
	IS(DOCA_ERROR_IN_USE, doca_comch_server_disconnect(server, peer));
	IS(DOCA_ERROR_BAD_STATE, doca_comch_producer_task_send_set_conf(producer, on_delivered, on_delivered, 1));
	IS(DOCA_ERROR_IN_USE, doca_comch_producer_destroy(producer));
	mmap = map(dev, text, sizeof(text), DOCA_ACCESS_FLAG_PCI_READ_ONLY);
	OK(doca_buf_inventory_create(4, &inventory));
	OK(doca_buf_inventory_start(inventory));
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, text, 20, &buf));
	IS(DOCA_ERROR_INVALID_VALUE,
		doca_comch_producer_task_send_alloc_init(producer, buf, imm, sizeof(imm), came, &held));

	/* Messages that are longer than the posted buffer fail. The buffer stays posted for the next message. */
	OK(doca_buf_set_data(buf, text, 65));
	IS(DOCA_ERROR_INVALID_VALUE, send_to(producer, pe2, buf, NULL, came));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, text, 65, &buf));
	IS(DOCA_ERROR_TOO_BIG, send_to(producer, pe2, buf, NULL, came));
	OK(doca_buf_set_data(buf, text, 20));
	IS(DOCA_ERROR_INVALID_VALUE, send_to(producer, pe2, buf, "123456789", came));
	IS(DOCA_ERROR_NOT_CONNECTED, send_to(producer, pe2, buf, NULL, 77));
	IS(DOCA_ERROR_INVALID_VALUE, send_to(producer, pe2, NULL, NULL, came));
	OK(send_to(producer, pe2, buf, "now", came));

	/* A list is sent into a list whose buffers have other lengths. */
	OK(doca_buf_set_data(buf, text, 6));
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, text + 6, 14, &rest));
	OK(doca_buf_chain_list(buf, rest));
	OK(send_to(producer, pe2, buf, NULL, came));
	OK(send_to(producer, pe2, NULL, "only", came));

	streamed.dev = dev;
	streamed.consumer = came;
	CHECK(pthread_create(&thread, NULL, stream, &streamed) == 0);
	CHECK(pthread_join(thread, NULL) == 0);

	UNTIL(pe, went == 1);
	IS(DOCA_ERROR_NOT_CONNECTED, send_to(producer, pe2, buf, NULL, 1));
	/* After this message, the client makes a consumer that gets the same number, and then disconnects. The producer holds a task at that time. */
	OK(doca_comch_server_task_send_alloc_init(server, peer, "go", 2, &message));
	OK(doca_task_submit(doca_comch_task_send_as_task(message)));
	UNTIL(pe, control_sent == 1);
	OK(doca_comch_producer_task_send_alloc_init(producer, buf, NULL, 0, 1, &held));
	UNTIL(pe, disconnects == 1);
	UNTIL(pe2, state_of(ctx) == DOCA_CTX_STATE_STOPPING);
	IS(DOCA_ERROR_BAD_STATE, doca_task_submit(doca_comch_producer_task_send_as_task(held)));
	doca_task_free(doca_comch_producer_task_send_as_task(held));
	UNTIL(pe2, state_of(ctx) == DOCA_CTX_STATE_IDLE);
	IS(DOCA_ERROR_NOT_CONNECTED, doca_ctx_start(ctx));
	OK(doca_comch_producer_destroy(producer));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(mmap));
	OK(doca_pe_destroy(pe2));
	(void)doca_ctx_stop(doca_comch_server_as_ctx(server));
	UNTIL(pe, state_of(doca_comch_server_as_ctx(server)) == DOCA_CTX_STATE_IDLE);
	OK(doca_comch_server_destroy(server));
	OK(doca_pe_destroy(pe));
	OK(doca_dev_rep_close(rep));
	OK(doca_dev_close(dev));
}

/* The side of the consumer. */

static int arrived, flushed, streaming;
static uint32_t last_producer, last_imm_len;
static uint8_t last_imm[32];

static void on_arrival(struct doca_comch_consumer_task_post_recv *task, union doca_data task_data, union doca_data ctx_data)
{
	struct doca_task *base = doca_comch_consumer_task_post_recv_as_task(task);
	struct doca_buf *buf = doca_comch_consumer_task_post_recv_get_buf(task);
	uint8_t *data = NULL;
	size_t len = 0;

	(void)task_data;
	CHECK(ctx_data.u64 == 4 && doca_task_get_status(base) == DOCA_SUCCESS);
	last_producer = doca_comch_consumer_task_post_recv_get_producer_id(task);
	last_imm_len = doca_comch_consumer_task_post_recv_get_imm_data_len(task);
	CHECK((last_imm_len > 0) == (doca_comch_consumer_task_post_recv_get_imm_data(task) != NULL));
	if (last_imm_len > 0)
		memcpy(last_imm, doca_comch_consumer_task_post_recv_get_imm_data(task), last_imm_len);
	if (streaming) {
		OK(doca_buf_get_data(buf, (void **)&data));
		OK(doca_buf_get_data_len(buf, &len));
		CHECK(len == PAGE && data[0] == (uint8_t)arrived && data[PAGE - 1] == (uint8_t)arrived);
		OK(doca_buf_reset_data_len(buf));
		OK(doca_task_submit(base));
	}
	arrived++;
}

static void on_flush(struct doca_comch_consumer_task_post_recv *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	CHECK(doca_task_get_status(doca_comch_consumer_task_post_recv_as_task(task)) != DOCA_SUCCESS);
	flushed++;
}

/* Both progress engines must make progress until a consumer runs. */
static struct doca_comch_consumer *consume(struct doca_mmap *mmap, struct doca_pe *control, struct doca_pe *pe, uint32_t imm)
{
	struct doca_comch_consumer *consumer;
	union doca_data data;
	struct doca_ctx *ctx;
	uint32_t value = 0;

	OK(doca_comch_consumer_create(peer, mmap, &consumer));
	OK(doca_comch_consumer_get_id(consumer, &value));
	CHECK(value == 1);
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_consumer_set_imm_data_len(consumer, 33));
	OK(doca_comch_consumer_set_imm_data_len(consumer, imm));
	OK(doca_comch_consumer_get_imm_data_len(consumer, &value));
	CHECK(value == imm);
	OK(doca_comch_consumer_task_post_recv_set_conf(consumer, on_arrival, on_flush, TASKS));
	ctx = doca_comch_consumer_as_ctx(consumer);
	data.u64 = 4;
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_pe_connect_ctx(pe, ctx));
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(ctx));
	CHECK(state_of(ctx) == DOCA_CTX_STATE_STARTING);
	UNTIL(control, (doca_pe_progress(pe), state_of(ctx) == DOCA_CTX_STATE_RUNNING));
	return consumer;
}

static struct doca_task *post(struct doca_comch_consumer *consumer, struct doca_buf *buf)
{
	struct doca_comch_consumer_task_post_recv *task;

	OK(doca_comch_consumer_task_post_recv_alloc_init(consumer, buf, &task));
	CHECK(doca_comch_consumer_task_post_recv_get_producer_id(task) == 0);
	OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task)));
	return doca_comch_consumer_task_post_recv_as_task(task);
}

static void be_client(const char *name)
{
	uint8_t *memory = (uint8_t *)calloc(16, PAGE);
	struct doca_dev *dev = open_device(HOST);
	struct doca_comch_consumer_task_post_recv *none;
	struct doca_buf *bufs[TASKS], *second, *outside;
	struct doca_comch_consumer *consumer;
	struct doca_task *tasks[TASKS];
	struct doca_buf_inventory *inventory;
	struct doca_comch_client *client;
	struct doca_mmap *mmap, *idle, *other;
	struct doca_pe *pe, *pe2;
	struct doca_ctx *ctx;
	uint32_t value = 0;
	size_t len = 0;

	OK(doca_comch_consumer_cap_is_supported(doca_dev_as_devinfo(dev)));
	OK(doca_comch_consumer_cap_get_max_num_tasks(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= TASKS);
	OK(doca_comch_consumer_cap_get_max_buf_size(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= PAGE);
	OK(doca_comch_consumer_cap_get_max_buf_list_len(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= 2);
	OK(doca_comch_consumer_cap_get_max_consumers(doca_dev_as_devinfo(dev), &value));
	CHECK(value >= 1);
	OK(doca_comch_consumer_cap_get_max_imm_data_len(doca_dev_as_devinfo(dev), &value));
	CHECK(value == 32);

	OK(doca_pe_create(&pe));
	OK(doca_comch_client_create(dev, name, &client));
	OK(doca_comch_client_task_send_set_conf(client, on_sent, on_sent, TASKS));
	OK(doca_comch_client_event_msg_recv_register(client, on_message));
	OK(doca_comch_client_event_consumer_register(client, on_came, on_went));
	ctx = doca_comch_client_as_ctx(client);
	OK(doca_pe_connect_ctx(pe, ctx));
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(ctx));
	OK(doca_comch_client_get_connection(client, &peer));
	mmap = map(dev, memory, 16 * PAGE, DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	IS(DOCA_ERROR_BAD_STATE, doca_comch_consumer_create(peer, mmap, &consumer));
	UNTIL(pe, state_of(ctx) == DOCA_CTX_STATE_RUNNING);
	OK(doca_mmap_create(&idle));
	IS(DOCA_ERROR_BAD_STATE, doca_comch_consumer_create(peer, idle, &consumer));
	OK(doca_mmap_destroy(idle));

	OK(doca_pe_create(&pe2));
	consumer = consume(mmap, pe, pe2, 8);
	IS(DOCA_ERROR_BAD_STATE, doca_comch_consumer_set_imm_data_len(consumer, 1));
	IS(DOCA_ERROR_IN_USE, doca_comch_consumer_destroy(consumer));
	/* The map cannot be stopped, because peers write to it. */
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_stop(mmap));

	OK(doca_buf_inventory_create(TASKS + 3, &inventory));
	OK(doca_buf_inventory_start(inventory));
	other = map(dev, &last_imm, sizeof(last_imm), DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	OK(doca_buf_inventory_buf_get_by_addr(inventory, other, &last_imm, 8, &outside));
	OK(doca_comch_consumer_task_post_recv_alloc_init(consumer, outside, &none));
	IS(DOCA_ERROR_INVALID_VALUE, doca_task_submit(doca_comch_consumer_task_post_recv_as_task(none)));
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(none));
	OK(doca_buf_dec_refcount(outside, NULL));
	OK(doca_mmap_destroy(other));

	OK(doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory, 64, &bufs[0]));
	tasks[0] = post(consumer, bufs[0]);
	UNTIL(pe2, arrived == 1);
	OK(doca_buf_get_data_len(bufs[0], &len));
	CHECK(len == 20 && memcmp(memory, "hello, host: twenty!", 21) == 0);
	CHECK(last_producer == 1 && last_imm_len == 3 && memcmp(last_imm, "now", 3) == 0);
	OK(doca_buf_dec_refcount(bufs[0], NULL));
	doca_task_free(tasks[0]);

	memset(memory, 0, 64);
	OK(doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory, 16, &bufs[0]));
	OK(doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory + 32, 16, &second));
	OK(doca_buf_chain_list(bufs[0], second));
	tasks[0] = post(consumer, bufs[0]);
	UNTIL(pe2, arrived == 2);
	CHECK(memcmp(memory, "hello, host: twe", 17) == 0 && memcmp(memory + 32, "nty!", 5) == 0 && last_imm_len == 0);
	OK(doca_buf_get_data_len(bufs[0], &len));
	CHECK(len == 16);
	OK(doca_buf_get_data_len(second, &len));
	CHECK(len == 4);
	OK(doca_buf_dec_refcount(bufs[0], NULL));
	doca_task_free(tasks[0]);

	tasks[0] = post(consumer, NULL);
	UNTIL(pe2, arrived == 3);
	CHECK(last_imm_len == 4 && memcmp(last_imm, "only", 4) == 0);
	doca_task_free(tasks[0]);

	arrived = 0;
	streaming = 1;
	for (int i = 0; i < TASKS; i++) {
		OK(doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory + i * PAGE, PAGE, &bufs[i]));
		tasks[i] = post(consumer, bufs[i]);
	}
	IS(DOCA_ERROR_NO_MEMORY, doca_comch_consumer_task_post_recv_alloc_init(consumer, bufs[0], &none));
	UNTIL(pe2, arrived == STREAM);
	CHECK(last_producer == 2);

	/* Tasks without a message are flushed, even if the program has freed them already. */
	OK(doca_ctx_get_num_inflight_tasks(doca_comch_consumer_as_ctx(consumer), &len));
	CHECK(len == TASKS);
	for (int i = 0; i < TASKS; i++) {
		OK(doca_buf_dec_refcount(bufs[i], NULL));
		doca_task_free(tasks[i]);
	}
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(doca_comch_consumer_as_ctx(consumer)));
	UNTIL(pe2, state_of(doca_comch_consumer_as_ctx(consumer)) == DOCA_CTX_STATE_IDLE);
	CHECK(flushed == TASKS && arrived == STREAM);
	OK(doca_comch_consumer_destroy(consumer));
	OK(doca_buf_inventory_destroy(inventory));

	/* The consumer's number is free again. A consumer stops when its connection ends. */
	UNTIL(pe, control_received == 1);
	consumer = consume(mmap, pe, pe2, 0);
	(void)doca_ctx_stop(ctx);
	UNTIL(pe, state_of(ctx) == DOCA_CTX_STATE_IDLE);
	UNTIL(pe2, state_of(doca_comch_consumer_as_ctx(consumer)) == DOCA_CTX_STATE_IDLE);
	OK(doca_comch_consumer_destroy(consumer));
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_destroy(mmap));
	OK(doca_pe_destroy(pe2));
	OK(doca_comch_client_destroy(client));
	OK(doca_pe_destroy(pe));
	OK(doca_dev_close(dev));
	free(memory);
}

int main(void)
{
	char name[64], byte;
	int pipes[2], status;
	pid_t child;

	snprintf(name, sizeof(name), "doca-emu-fast-%d", (int)getpid());
	CHECK(pipe(pipes) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		serve(name, pipes[1]);
		return 0;
	}
	/* The client looks for the server for 3 s, in which a busy machine may not have started the server. */
	CHECK(close(pipes[1]) == 0 && read(pipes[0], &byte, 1) == 1);
	be_client(name);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
