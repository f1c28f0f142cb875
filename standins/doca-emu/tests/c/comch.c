/* doca_comch.h: a server on the DPU and a client on the host, two processes. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <doca_comch.h>
#include <doca_ctx.h>
#include <doca_pe.h>

#include "check.h"

enum { MESSAGES = 300, TASKS = 16 };

static struct doca_comch_connection *peer;
static int connects, disconnects, received, sent, failed;
static char last[8192];
static uint32_t last_len;
static enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;

static void on_sent(struct doca_comch_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	CHECK(ctx_data.u64 == 5);
	sent++;
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void on_not_sent(struct doca_comch_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	CHECK(doca_task_get_status(doca_comch_task_send_as_task(task)) != DOCA_SUCCESS);
	failed++;
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void on_message(struct doca_comch_event_msg_recv *event, uint8_t *buffer, uint32_t len,
	struct doca_comch_connection *connection)
{
	CHECK(event != NULL && connection == peer && len <= sizeof(last));
	memcpy(last, buffer, len);
	last_len = len;
	received++;
}

static void on_connect(struct doca_comch_event_connection_status_changed *event,
	struct doca_comch_connection *connection, uint8_t successful)
{
	CHECK(event != NULL && successful == 1);
	peer = connection;
	connects++;
}

static void on_disconnect(struct doca_comch_event_connection_status_changed *event,
	struct doca_comch_connection *connection, uint8_t successful)
{
	CHECK(event != NULL && successful == 1 && connection == peer);
	peer = NULL;
	disconnects++;
}

static void on_state(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states before,
	enum doca_ctx_states after)
{
	(void)ctx;
	CHECK(data.u64 == 5 && before == state);
	state = after;
}

static void on_consumer(struct doca_comch_event_consumer *event, struct doca_comch_connection *connection, uint32_t id)
{
	(void)event;
	(void)connection;
	(void)id;
	CHECK(!"no consumer is created in this test");
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

static doca_error_t submit(struct doca_comch_task_send *task)
{
	doca_error_t result = doca_task_submit(doca_comch_task_send_as_task(task));

	if (result != DOCA_SUCCESS)
		doca_task_free(doca_comch_task_send_as_task(task));
	return result;
}

static void serve(int started)
{
	struct doca_dev *dev = open_device(DPU), *same;
	struct doca_dev_rep *rep = open_representor(dev, HOST), *same_rep;
	struct doca_comch_server *server, *second;
	struct doca_comch_task_send *task, *tasks[TASKS];
	struct doca_pe *pe;
	struct doca_ctx *ctx;
	union doca_data data;
	char name[256], reply[64];
	uint32_t max = 0, value = 0, sends = 0;
	uint64_t counter = 0;

	OK(doca_comch_cap_server_is_supported(doca_dev_as_devinfo(dev)));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_cap_client_is_supported(doca_dev_as_devinfo(dev)));
	OK(doca_comch_cap_get_max_msg_size(doca_dev_as_devinfo(dev), &max));
	CHECK(max > 0 && max <= sizeof(last));
	OK(doca_comch_cap_get_max_name_len(doca_dev_as_devinfo(dev), &value));
	CHECK(value < sizeof(name));
	memset(name, 'n', value);
	name[value] = '\0';
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_create(dev, rep, name, &server));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_create(dev, NULL, "name", &server));
	snprintf(name, sizeof(name), "doca-emu-test-%d", (int)getppid());
	OK(doca_comch_server_create(dev, rep, name, &server));
	OK(doca_comch_server_get_device(server, &same));
	OK(doca_comch_server_get_device_rep(server, &same_rep));
	CHECK(same == dev && same_rep == rep);

	OK(doca_comch_cap_get_max_send_tasks(doca_dev_as_devinfo(dev), &sends));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_task_send_set_conf(server, on_sent, on_not_sent, sends + 1));
	OK(doca_comch_server_task_send_set_conf(server, on_sent, on_not_sent, TASKS));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_event_msg_recv_register(server, NULL));
	OK(doca_comch_server_event_msg_recv_register(server, on_message));
	/* The name of DOCA between 2.5 and 2.9. */
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_event_connection_register(NULL, on_connect, on_disconnect));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_event_connection_register(server, NULL, on_disconnect));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_event_connection_register(server, on_connect, NULL));
	OK(doca_comch_server_event_connection_register(server, on_connect, on_disconnect));
	OK(doca_comch_server_event_consumer_register(server, on_consumer, on_consumer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_set_max_msg_size(server, max + 1));
	OK(doca_comch_server_set_max_msg_size(server, max));
	OK(doca_comch_server_set_recv_queue_size(server, 10));
	OK(doca_comch_server_get_recv_queue_size(server, &value));
	CHECK(value == 10);

	OK(doca_pe_create(&pe));
	ctx = doca_comch_server_as_ctx(server);
	data.u64 = 5;
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_ctx_set_state_changed_cb(ctx, on_state));
	IS(DOCA_ERROR_NOT_CONNECTED, doca_ctx_start(ctx));
	OK(doca_pe_connect_ctx(pe, ctx));
	OK(doca_ctx_start(ctx));
	CHECK(write(started, "", 1) == 1 && close(started) == 0);
	IS(DOCA_ERROR_BAD_STATE, doca_comch_server_set_max_msg_size(server, 1));
	IS(DOCA_ERROR_IN_USE, doca_comch_server_destroy(server));

	/* A second server with the same name cannot start. */
	OK(doca_comch_server_create(dev, rep, name, &second));
	OK(doca_comch_server_task_send_set_conf(second, on_sent, on_not_sent, 1));
	OK(doca_pe_connect_ctx(pe, doca_comch_server_as_ctx(second)));
	IS(DOCA_ERROR_IN_USE, doca_ctx_start(doca_comch_server_as_ctx(second)));
	OK(doca_comch_server_destroy(second));

	UNTIL(pe, connects == 1);
	CHECK(doca_comch_server_get_server_ctx(peer) == server && doca_comch_client_get_client_ctx(peer) == NULL);
	data.u64 = 9;
	OK(doca_comch_connection_set_user_data(peer, data));
	CHECK(doca_comch_connection_get_user_data(peer).u64 == 9);
	UNTIL(pe, received == MESSAGES);
	CHECK(last_len == 10 && memcmp(last, "number 299", 10) == 0);

	/* Take and submit all send tasks. A further task is not available. */
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_task_send_alloc_init(server, peer, reply, max + 1, &task));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_task_send_alloc_init(server, peer, reply, 0, &task));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_server_task_send_alloc_init(server, NULL, reply, 1, &task));
	for (int i = 0; i < TASKS; i++)
		OK(doca_comch_server_task_send_alloc_init(server, peer, last, max, &tasks[i]));
	IS(DOCA_ERROR_NO_MEMORY, doca_comch_server_task_send_alloc_init(server, peer, last, max, &task));
	for (int i = 0; i < TASKS; i++)
		OK(submit(tasks[i]));
	UNTIL(pe, sent == TASKS);
	OK(doca_comch_connection_update_info(peer));
	OK(doca_comch_connection_get_counter(peer, DOCA_COMCH_COUNTER_RECV_MESSAGES, &counter));
	CHECK(counter == MESSAGES);
	OK(doca_comch_connection_get_counter(peer, DOCA_COMCH_COUNTER_SENT_BYTES, &counter));
	CHECK(counter == (uint64_t)TASKS * max);
	IS(DOCA_ERROR_INVALID_VALUE,
		doca_comch_connection_get_counter(peer, (enum doca_comch_counter)5, &counter));

	/* The first client disconnects. The second one dies. The server disconnects the third one. */
	UNTIL(pe, disconnects == 1);
	UNTIL(pe, disconnects == 2 && connects == 2);
	UNTIL(pe, connects == 3);
	OK(doca_comch_server_disconnect(server, peer));
	UNTIL(pe, disconnects == 3);
	/* The fourth client is still connected when the server begins to stop. */
	UNTIL(pe, connects == 4);
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(ctx));
	UNTIL(pe, state == DOCA_CTX_STATE_IDLE);
	CHECK(disconnects == 4 && failed == 0);
	OK(doca_comch_server_destroy(server));
	OK(doca_pe_destroy(pe));
	OK(doca_dev_rep_close(rep));
	OK(doca_dev_close(dev));
}

static struct doca_comch_client *connect_to(struct doca_dev *dev, const char *name, struct doca_pe **pe)
{
	struct doca_comch_client *client;
	struct doca_comch_connection *connection;
	union doca_data data;
	struct doca_ctx *ctx;

	OK(doca_pe_create(pe));
	OK(doca_comch_client_create(dev, name, &client));
	ctx = doca_comch_client_as_ctx(client);
	OK(doca_pe_connect_ctx(*pe, ctx));
	OK(doca_comch_client_task_send_set_conf(client, on_sent, on_not_sent, TASKS));
	OK(doca_comch_client_event_msg_recv_register(client, on_message));
	data.u64 = 5;
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_ctx_set_state_changed_cb(ctx, on_state));
	IS(DOCA_ERROR_BAD_STATE, doca_comch_client_get_connection(client, &connection));
	IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(ctx));
	CHECK(state == DOCA_CTX_STATE_STARTING);
	OK(doca_comch_client_get_connection(client, &peer));
	IS(DOCA_ERROR_CONNECTION_INPROGRESS, doca_comch_connection_update_info(peer));
	return client;
}

static void close_client(struct doca_comch_client *client, struct doca_pe *pe)
{
	UNTIL(pe, state == DOCA_CTX_STATE_IDLE);
	OK(doca_comch_client_destroy(client));
	OK(doca_pe_destroy(pe));
	peer = NULL;
}

static void be_client(const char *name)
{
	struct doca_dev *dev = open_device(HOST);
	struct doca_comch_client *client;
	struct doca_comch_task_send *task = NULL;
	struct doca_pe *pe;
	char messages[MESSAGES][16];
	uint32_t max = 0;
	doca_error_t result;
	pid_t child;

	IS(DOCA_ERROR_NOT_SUPPORTED, doca_comch_cap_server_is_supported(doca_dev_as_devinfo(dev)));
	OK(doca_comch_cap_client_is_supported(doca_dev_as_devinfo(dev)));
	OK(doca_comch_cap_get_max_msg_size(doca_dev_as_devinfo(dev), &max));
	client = connect_to(dev, name, &pe);
	UNTIL(pe, state == DOCA_CTX_STATE_RUNNING);
	CHECK(doca_comch_client_get_client_ctx(peer) == client && doca_comch_server_get_server_ctx(peer) == NULL);
	for (int i = 0; i < MESSAGES; i++) {
		int len = snprintf(messages[i], sizeof(messages[i]), "number %d", i);

		/* Without a free task, make progress until a task ends. */
		while ((result = doca_comch_client_task_send_alloc_init(client, peer, messages[i], (uint32_t)len, &task)) ==
		       DOCA_ERROR_NO_MEMORY)
			(void)doca_pe_progress(pe);
		OK(result);
		OK(submit(task));
	}
	UNTIL(pe, sent == MESSAGES && received == TASKS);
	CHECK(last_len == max);
	IS(DOCA_ERROR_INVALID_VALUE, doca_comch_client_task_send_alloc_init(client, peer, last, max + 1, &task));
	result = doca_ctx_stop(doca_comch_client_as_ctx(client));
	CHECK(result == DOCA_SUCCESS || result == DOCA_ERROR_IN_PROGRESS);
	close_client(client, pe);

	/* A client that is killed. */
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		client = connect_to(dev, name, &pe);
		UNTIL(pe, state == DOCA_CTX_STATE_RUNNING);
		kill(getpid(), SIGKILL);
	}
	int status;

	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));

	/* The server disconnects the first of these clients, and stops with the second. Each client holds a task at that time. */
	for (int i = 0; i < 2; i++) {
		client = connect_to(dev, name, &pe);
		UNTIL(pe, state == DOCA_CTX_STATE_RUNNING);
		OK(doca_comch_client_task_send_alloc_init(client, peer, last, 1, &task));
		UNTIL(pe, state == DOCA_CTX_STATE_STOPPING);
		CHECK(doca_task_submit(doca_comch_task_send_as_task(task)) != DOCA_SUCCESS);
		IS(DOCA_ERROR_CONNECTION_ABORTED, doca_comch_connection_update_info(peer));
		for (int tries = 0; tries < 10; tries++)
			(void)doca_pe_progress(pe);
		CHECK(state == DOCA_CTX_STATE_STOPPING);
		doca_task_free(doca_comch_task_send_as_task(task));
		close_client(client, pe);
	}

	/* No server has this name, so the client gives up. */
	client = connect_to(dev, "no server has this name", &pe);
	UNTIL(pe, state == DOCA_CTX_STATE_IDLE);
	close_client(client, pe);
	OK(doca_dev_close(dev));
}

int main(void)
{
	char name[64], byte;
	int pipes[2], status;
	pid_t child;

	snprintf(name, sizeof(name), "doca-emu-test-%d", (int)getpid());
	CHECK(pipe(pipes) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		serve(pipes[1]);
		return 0;
	}
	/* The client looks for the server for 3 s, in which a busy machine may not have started the server. */
	CHECK(close(pipes[1]) == 0 && read(pipes[0], &byte, 1) == 1);
	be_client(name);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
