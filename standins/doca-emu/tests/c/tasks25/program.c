/* DOCA 2.5: its comm channel of contexts (doca_cc.h) with producers and consumers, its sync events, its log and command lines.
 * Server and client are in one process, each on its own progress engine. */
#include <stdbool.h>
#include <unistd.h>

#include <doca_argp.h>
#include <doca_buf_inventory.h>
#include <doca_cc.h>
#include <doca_cc_consumer.h>
#include <doca_cc_producer.h>
#include <doca_ctx.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_sync_event.h>

#include "../workq/check.h"

enum { SIZE = 4096, LOG_TASKS = 2, TASKS = 1 << LOG_TASKS };

/* One side: a server or a client. */
struct side {
	struct doca_pe *pe;
	struct doca_ctx *ctx;
	struct doca_cc_connection *connection;
	unsigned sent, received, came, went;
	uint32_t consumer;
	size_t len;
	char last[SIZE];
};

static struct side server_side, client_side;
static unsigned delivered, arrived;

static struct side *side_of(struct doca_cc_connection *connection)
{
	return (struct side *)doca_cc_connection_get_user_data(connection).ptr;
}

static void on_sent(struct doca_cc_send_task *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	((struct side *)ctx_data.ptr)->sent++;
	OK(doca_task_get_status(doca_cc_send_task_as_task(task)));
	doca_task_free(doca_cc_send_task_as_task(task));
}

static void on_message(struct doca_cc_event_msg_recv *event, uint8_t *buffer, size_t len,
	struct doca_cc_connection *connection)
{
	struct side *side = side_of(connection);

	CHECK(event != NULL && len <= sizeof(side->last));
	memcpy(side->last, buffer, len);
	side->len = len;
	side->received++;
}

static void on_connect(struct doca_cc_event_connection_status_changed *event, struct doca_cc_connection *connection,
	bool successful)
{
	union doca_data data;

	CHECK(event != NULL && successful);
	data.ptr = &server_side;
	OK(doca_cc_connection_set_user_data(connection, data));
	server_side.connection = connection;
	server_side.came++;
}

static void on_disconnect(struct doca_cc_event_connection_status_changed *event, struct doca_cc_connection *connection,
	bool successful)
{
	CHECK(event != NULL && successful && connection == server_side.connection);
	server_side.went++;
}

static void on_consumer(struct doca_cc_event_consumer *event, struct doca_cc_connection *connection, uint32_t id)
{
	CHECK(event != NULL);
	side_of(connection)->consumer = id;
}

static void on_consumer_gone(struct doca_cc_event_consumer *event, struct doca_cc_connection *connection, uint32_t id)
{
	CHECK(event != NULL && side_of(connection)->consumer == id);
	side_of(connection)->consumer = 0;
}

/* Makes progress on both sides until the condition holds, for at least two minutes. */
#define UNTIL(condition) \
	do { \
		for (int tries = 0; !(condition) && tries < 600000; tries++) \
			if (doca_pe_progress(server_side.pe) + doca_pe_progress(client_side.pe) == 0) \
				usleep(200); \
		CHECK(condition); \
	} while (0)

static enum doca_ctx_states state(struct doca_ctx *ctx)
{
	enum doca_ctx_states now;

	OK(doca_ctx_get_state(ctx, &now));
	return now;
}

static void begin(struct side *side, struct doca_ctx *ctx)
{
	union doca_data data;

	data.ptr = side;
	side->ctx = ctx;
	OK(doca_pe_create(&side->pe));
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_pe_connect_ctx(side->pe, ctx));
}

static void on_delivered(struct doca_cc_producer_send_task *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	OK(doca_task_get_status(doca_cc_producer_send_task_as_task(task)));
	delivered++;
}

static void on_arrived(struct doca_cc_consumer_post_recv_task *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	OK(doca_task_get_status(doca_cc_consumer_post_recv_task_as_task(task)));
	arrived++;
}

static struct doca_buf *buffer(struct doca_dev *dev, struct doca_buf_inventory *inventory, void *memory, size_t data,
	struct doca_mmap **mmap)
{
	struct doca_buf *buf;

	OK(doca_mmap_create(mmap));
	OK(doca_mmap_set_memrange(*mmap, memory, SIZE));
	OK(doca_mmap_set_permissions(*mmap, DOCA_ACCESS_FLAG_PCI_READ_WRITE));
	OK(doca_mmap_add_dev(*mmap, dev));
	OK(doca_mmap_start(*mmap));
	OK(doca_buf_inventory_buf_get_by_args(inventory, *mmap, memory, SIZE, memory, data, &buf));
	return buf;
}

/* A message from a producer of the server to a consumer of the client. */
static void fast_path(struct doca_dev *dpu, struct doca_dev *host)
{
	static char from[SIZE], to[SIZE];
	const struct doca_devinfo *info = doca_dev_as_devinfo(dpu);
	struct doca_cc_consumer_post_recv_task *post;
	struct doca_cc_producer_send_task *send;
	struct doca_mmap *from_map, *to_map;
	struct doca_buf_inventory *inventory;
	struct doca_cc_consumer *consumer;
	struct doca_cc_producer *producer;
	struct doca_buf *from_buf, *to_buf;
	struct doca_ctx *receives, *sends;
	uint32_t id = 0;
	size_t log = 99, size = 0, data = 0;

	OK(doca_cc_cap_is_producer_supported(info));
	OK(doca_cc_cap_is_consumer_supported(info));
	OK(doca_cc_producer_cap_get_max_buf_size(info, &size));
	CHECK(size >= SIZE);
	OK(doca_cc_consumer_cap_get_max_buf_size(info, &size));
	CHECK(size >= SIZE);
	OK(doca_cc_producer_cap_get_max_log_num_tasks(info, &log));
	CHECK(log >= LOG_TASKS && log < 32);
	OK(doca_buf_inventory_create(2, &inventory));
	OK(doca_buf_inventory_start(inventory));
	memset(from, 'm', SIZE);
	from_buf = buffer(dpu, inventory, from, SIZE - 1, &from_map);
	to_buf = buffer(host, inventory, to, 0, &to_map);

	OK(doca_cc_consumer_create(client_side.connection, to_map, &consumer));
	OK(doca_cc_consumer_cap_get_max_log_num_tasks(info, &log));
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_consumer_post_recv_task_set_conf(consumer, on_arrived, on_arrived, log + 1));
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_consumer_post_recv_task_set_conf(consumer, on_arrived, on_arrived, 64));
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_consumer_post_recv_task_set_conf(consumer, on_arrived, on_arrived, SIZE_MAX));
	OK(doca_cc_consumer_post_recv_task_set_conf(consumer, on_arrived, on_arrived, LOG_TASKS));
	receives = doca_cc_consumer_as_ctx(consumer);
	OK(doca_pe_connect_ctx(client_side.pe, receives));
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(receives));
	UNTIL(state(receives) == DOCA_CTX_STATE_RUNNING && server_side.consumer != 0);
	OK(doca_cc_consumer_get_id(consumer, &id));
	CHECK(id == server_side.consumer);

	OK(doca_cc_producer_create(server_side.connection, &producer));
	OK(doca_cc_producer_send_task_set_conf(producer, on_delivered, on_delivered, LOG_TASKS));
	sends = doca_cc_producer_as_ctx(producer);
	OK(doca_pe_connect_ctx(server_side.pe, sends));
	OK(doca_ctx_start(sends));

	OK(doca_cc_consumer_post_recv_task_alloc_init(consumer, NULL, &post));
	doca_cc_consumer_post_recv_task_set_buf(post, to_buf);
	CHECK(doca_cc_consumer_post_recv_task_get_buf(post) == to_buf);
	OK(doca_task_submit(doca_cc_consumer_post_recv_task_as_task(post)));
	OK(doca_cc_producer_send_task_alloc_init(producer, NULL, 99, &send));
	doca_cc_producer_send_task_set_buf(send, from_buf);
	CHECK(doca_cc_producer_send_task_get_buf(send) == from_buf);
	doca_cc_producer_send_task_set_consumer_id(send, (int)id);
	CHECK(doca_cc_producer_send_task_get_consumer_id(send) == (int)id);
	OK(doca_task_submit(doca_cc_producer_send_task_as_task(send)));
	UNTIL(delivered == 1 && arrived == 1);
	OK(doca_buf_get_data_len(to_buf, &data));
	CHECK(data == SIZE - 1 && memcmp(to, from, SIZE - 1) == 0 && to[SIZE - 1] == 0);

	doca_task_free(doca_cc_producer_send_task_as_task(send));
	doca_task_free(doca_cc_consumer_post_recv_task_as_task(post));
	OK(doca_ctx_stop(sends));
	OK(doca_cc_producer_destroy(producer));
	OK(doca_ctx_stop(receives));
	OK(doca_cc_consumer_destroy(consumer));
	UNTIL(server_side.consumer == 0);
	OK(doca_buf_dec_refcount(from_buf, NULL));
	OK(doca_buf_dec_refcount(to_buf, NULL));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(from_map));
	OK(doca_mmap_destroy(to_map));
}

static void channel(struct doca_dev *dpu, struct doca_dev *host)
{
	const struct doca_devinfo *info = doca_dev_as_devinfo(dpu);
	struct doca_dev_rep *rep = open_representor(dpu, HOST), *same_rep;
	struct doca_dev *same;
	struct doca_cc_send_task *task, *tasks[TASKS];
	struct doca_cc_server *server;
	struct doca_cc_client *client;
	size_t max = 0, size = 0, sends = 0;
	uint32_t len = 0;
	uint64_t counter = 0;
	union doca_data data;
	char name[64];

	snprintf(name, sizeof(name), "2.5 %d", (int)getpid());
	OK(doca_cc_cap_server_is_supported(info));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_cc_cap_client_is_supported(info));
	OK(doca_cc_cap_get_max_name_len(info, &len));
	CHECK(len > strlen(name));
	OK(doca_cc_cap_get_max_msg_size(info, &max));
	CHECK(max > 0 && max <= SIZE);
	OK(doca_cc_cap_get_max_clients(info, &size));
	CHECK(size > 1);
	OK(doca_cc_cap_get_max_send_tasks(info, &sends));
	CHECK(sends >= TASKS);

	OK(doca_cc_server_create(dpu, rep, name, &server));
	OK(doca_cc_server_get_device(server, &same));
	OK(doca_cc_server_get_device_repr(server, &same_rep));
	CHECK(same == dpu && same_rep == rep);
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_server_send_task_set_conf(server, on_sent, on_sent, 31));
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_server_send_task_set_conf(server, on_sent, on_sent, 32));
	OK(doca_cc_server_send_task_set_conf(server, on_sent, on_sent, LOG_TASKS));
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_server_event_msg_recv_register(server, NULL));
	OK(doca_cc_server_event_msg_recv_register(server, on_message));
	OK(doca_cc_server_event_connection_register(server, on_connect, on_disconnect));
	OK(doca_cc_server_event_consumer_register(server, on_consumer, on_consumer_gone));
	/* These values are valid in their lower 32 bits, but not as a whole. */
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_server_set_max_msg_size(server, ((size_t)1 << 32) + 1));
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_server_set_recv_queue_size(server, ((size_t)1 << 32) + 1));
	OK(doca_cc_server_set_max_msg_size(server, max));
	OK(doca_cc_server_get_max_msg_size(server, &size));
	CHECK(size == max);
	OK(doca_cc_server_set_recv_queue_size(server, 10));
	OK(doca_cc_server_get_recv_queue_size(server, &size));
	CHECK(size == 10);
	OK(doca_cc_cap_get_max_recv_queue_size(info, &size));
	CHECK(size >= 10);
	begin(&server_side, doca_cc_server_as_ctx(server));
	OK(doca_ctx_start(server_side.ctx));

	OK(doca_cc_client_create(host, name, &client));
	OK(doca_cc_client_get_device(client, &same));
	CHECK(same == host);
	OK(doca_cc_client_send_task_set_conf(client, on_sent, on_sent, 0));
	OK(doca_cc_client_event_msg_recv_register(client, on_message));
	OK(doca_cc_client_event_consumer_register(client, on_consumer, on_consumer_gone));
	OK(doca_cc_client_set_max_msg_size(client, max));
	OK(doca_cc_client_get_max_msg_size(client, &size));
	CHECK(size == max);
	OK(doca_cc_client_set_recv_queue_size(client, 3));
	OK(doca_cc_client_get_recv_queue_size(client, &size));
	CHECK(size == 3);
	begin(&client_side, doca_cc_client_as_ctx(client));
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(client_side.ctx));
	UNTIL(server_side.came == 1 && state(client_side.ctx) == DOCA_CTX_STATE_RUNNING);
	OK(doca_cc_client_get_connection(client, &client_side.connection));
	data.ptr = &client_side;
	OK(doca_cc_connection_set_user_data(client_side.connection, data));
	CHECK(doca_cc_server_get_server_ctx(server_side.connection) == server);
	CHECK(doca_cc_client_get_client_ctx(client_side.connection) == client);
	CHECK(doca_cc_client_get_client_ctx(server_side.connection) == NULL);

	OK(doca_cc_client_send_task_alloc_init(client, client_side.connection, "hello", 5, &task));
	IS(DOCA_ERROR_NO_MEMORY, doca_cc_client_send_task_alloc_init(client, client_side.connection, "more", 4, &tasks[0]));
	OK(doca_task_submit(doca_cc_send_task_as_task(task)));
	UNTIL(client_side.sent == 1 && server_side.received == 1);
	CHECK(server_side.len == 5 && memcmp(server_side.last, "hello", 5) == 0);
	IS(DOCA_ERROR_INVALID_VALUE, doca_cc_server_send_task_alloc_init(server, server_side.connection, name, max + 1, &task));
	IS(DOCA_ERROR_INVALID_VALUE,
		doca_cc_server_send_task_alloc_init(server, server_side.connection, name, ((size_t)1 << 32) + 1, &task));
	for (unsigned n = 0; n < TASKS; n++)
		OK(doca_cc_server_send_task_alloc_init(server, server_side.connection, name, n + 1, &tasks[n]));
	IS(DOCA_ERROR_NO_MEMORY, doca_cc_server_send_task_alloc_init(server, server_side.connection, name, 1, &task));
	for (unsigned n = 0; n < TASKS; n++)
		OK(doca_task_submit(doca_cc_send_task_as_task(tasks[n])));
	UNTIL(server_side.sent == TASKS && client_side.received == TASKS);
	CHECK(client_side.len == TASKS && memcmp(client_side.last, name, TASKS) == 0);
	OK(doca_cc_connection_update_info(server_side.connection));
	OK(doca_cc_connection_get_counter(server_side.connection, DOCA_CC_COUNTER_SENT_MESSAGES, &counter));
	CHECK(counter == TASKS);
	OK(doca_cc_connection_get_counter(server_side.connection, DOCA_CC_COUNTER_RECV_BYTES, &counter));
	CHECK(counter == 5);

	fast_path(dpu, host);

	doca_ctx_stop(client_side.ctx);
	UNTIL(state(client_side.ctx) == DOCA_CTX_STATE_IDLE && server_side.went == 1);
	doca_ctx_stop(server_side.ctx);
	UNTIL(state(server_side.ctx) == DOCA_CTX_STATE_IDLE);
	OK(doca_cc_client_destroy(client));
	OK(doca_cc_server_destroy(server));
	OK(doca_pe_destroy(client_side.pe));
	OK(doca_pe_destroy(server_side.pe));
	OK(doca_dev_rep_close(rep));
}

static int waited;

static void on_greater(struct doca_sync_event_task_wait_gt *task, union doca_data task_data, union doca_data ctx_data)
{
	CHECK(task_data.u64 == 3 && ctx_data.u64 == 4);
	OK(doca_task_get_status(doca_sync_event_task_wait_gt_as_doca_task(task)));
	waited++;
}

/* An event of the host that the DPU has imported, and a task that waits for it. */
static void events(struct doca_dev *dpu, struct doca_dev *host)
{
	struct doca_sync_event_task_wait_gt *task;
	struct doca_sync_event *event, *imported;
	union doca_data three, four;
	struct doca_pe *pe;
	const uint8_t *blob;
	size_t size;

	three.u64 = 3;
	four.u64 = 4;
	OK(doca_sync_event_cap_is_export_to_dpu_supported(doca_dev_as_devinfo(host)));
	OK(doca_sync_event_cap_task_wait_gt_is_supported(doca_dev_as_devinfo(host)));
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_dpu(event));
	OK(doca_sync_event_add_subscriber_location_cpu(event, host));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_export_to_dpa(event, NULL, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_export_to_gpu(event, NULL, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_remote_net_export_to_dpa(NULL, NULL, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_remote_net_export_to_gpu(NULL, NULL, NULL));
	OK(doca_sync_event_task_wait_gt_set_conf(event, on_greater, on_greater, 1));
	OK(doca_pe_create(&pe));
	OK(doca_ctx_set_user_data(doca_sync_event_as_ctx(event), four));
	OK(doca_pe_connect_ctx(pe, doca_sync_event_as_ctx(event)));
	OK(doca_ctx_start(doca_sync_event_as_ctx(event)));
	OK(doca_sync_event_export_to_dpu(event, host, &blob, &size));
	OK(doca_sync_event_create_from_export(dpu, blob, size, &imported));
	OK(doca_sync_event_start(imported));

	OK(doca_sync_event_task_wait_gt_alloc_init(event, 9, 0, three, &task));
	doca_sync_event_task_wait_gt_set_wait_val(task, 6);
	CHECK(doca_sync_event_task_wait_gt_get_wait_val(task) == 6);
	doca_sync_event_task_wait_gt_set_mask(task, 0xff);
	CHECK(doca_sync_event_task_wait_gt_get_mask(task) == 0xff);
	OK(doca_task_submit(doca_sync_event_task_wait_gt_as_doca_task(task)));
	for (uint64_t number = 5; number <= 7; number++) {
		/* Bits outside of the mask are ignored. */
		OK(doca_sync_event_update_set(imported, 0x100 + number));
		for (int tries = 0; tries < 10; tries++)
			doca_pe_progress(pe);
		CHECK(waited == (number > 6));
	}
	doca_task_free(doca_sync_event_task_wait_gt_as_doca_task(task));
	OK(doca_sync_event_stop(imported));
	OK(doca_sync_event_destroy(imported));
	OK(doca_ctx_stop(doca_sync_event_as_ctx(event)));
	OK(doca_sync_event_destroy(event));
	OK(doca_pe_destroy(pe));
}

static char line[256], sdk_line[256], seen[256];

static void on_line(char *text)
{
	CHECK(text == line);
	memcpy(seen, line, sizeof(seen));
}

static void on_sdk_line(char *text)
{
	CHECK(text == sdk_line);
}

static void program(void)
{
	struct doca_log_backend *backend, *sdk;
	const char *address = NULL;
	int source;

	OK(doca_log_register_source("PROGRAM", &source));
	OK(doca_log_backend_create_with_buffer(line, sizeof(line), on_line, &backend));
	OK(doca_log_backend_create_with_buffer_sdk(sdk_line, sizeof(sdk_line), on_sdk_line, &sdk));
	OK(doca_log(DOCA_LOG_LEVEL_ERROR, source, __FILE__, __LINE__, __func__, "seven %d", 7));
	CHECK(strstr(seen, "seven 7") != NULL);
	OK(doca_argp_init("program", NULL));
	doca_argp_set_grpc_program();
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_argp_get_grpc_addr(&address));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_get_grpc_addr(NULL));
	OK(doca_argp_destroy());
}

int main(void)
{
	struct doca_dev *dpu = open_device(DPU), *host = open_device(HOST);

	CHECK(strcmp(doca_version_runtime(), "2.5.0108") == 0 && strcmp(DOCA_VER_STRING, "2.5.0108") == 0);
	CHECK(DOCA_CURRENT_VERSION_NUM == DOCA_VERSION_NUM(DOCA_VER_MAJOR, DOCA_VER_MINOR, DOCA_VER_PATCH));
	channel(dpu, host);
	events(dpu, host);
	program();
	OK(doca_dev_close(dpu));
	OK(doca_dev_close(host));
	return 0;
}
