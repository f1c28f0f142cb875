/* DOCA 3: the other side of comm_channel.c in a mixed pair. Its arguments are serve NAME or connect NAME. */
#include <poll.h>

#include <doca_comch.h>
#include <doca_ctx.h>
#include <doca_pe.h>

#include "../check.h"

enum { SIZE = 1000, MESSAGES = 300, PATIENCE = 60000 };

static struct doca_comch_server *server;
static struct doca_comch_client *client;
static struct doca_comch_connection *peer;
static struct doca_pe *pe;
static unsigned received, ended;

/* Makes message number n. */
static size_t message(uint8_t *to, unsigned n)
{
	size_t len = 1 + n * 37 % SIZE;

	memset(to, (int)n, len);
	return len;
}

static void send_number(unsigned n)
{
	static uint8_t bytes[SIZE];
	uint32_t len = (uint32_t)message(bytes, n);
	struct doca_comch_task_send *task;

	if (server != NULL)
		OK(doca_comch_server_task_send_alloc_init(server, peer, bytes, len, &task));
	else
		OK(doca_comch_client_task_send_alloc_init(client, peer, bytes, len, &task));
	OK(doca_task_submit(doca_comch_task_send_as_task(task)));
}

static void on_sent(struct doca_comch_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	OK(doca_task_get_status(doca_comch_task_send_as_task(task)));
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void on_message(struct doca_comch_event_msg_recv *event, uint8_t *bytes, uint32_t len,
	struct doca_comch_connection *connection)
{
	uint8_t wanted[SIZE];

	(void)event;
	CHECK(connection == peer && len == message(wanted, received) && memcmp(bytes, wanted, len) == 0);
	if (server != NULL)
		send_number(received);
	received++;
}

static void on_change(struct doca_comch_event_connection_status_changed *event, struct doca_comch_connection *connection,
	uint8_t successful)
{
	(void)event;
	CHECK(successful == 1 && (peer == NULL || peer == connection));
	ended += peer != NULL;
	peer = connection;
}

static void wait_for_progress(void)
{
	doca_notification_handle_t handle;
	struct pollfd waits;

	OK(doca_pe_get_notification_handle(pe, &handle));
	waits.fd = handle;
	waits.events = POLLIN;
	while (doca_pe_progress(pe) == 0) {
		OK(doca_pe_request_notification(pe));
		CHECK(poll(&waits, 1, PATIENCE) == 1);
		OK(doca_pe_clear_notification(pe, handle));
	}
}

int main(int argc, char **argv)
{
	int serves = argc == 3 && strcmp(argv[1], "serve") == 0;
	struct doca_dev *dev = open_device(serves ? DPU : HOST);
	struct doca_dev_rep *rep = serves ? open_representor(dev, HOST) : NULL;
	enum doca_ctx_states state = DOCA_CTX_STATE_STARTING;
	struct doca_ctx *ctx;

	CHECK(argc == 3);
	OK(doca_pe_create(&pe));
	if (serves) {
		OK(doca_comch_server_create(dev, rep, argv[2], &server));
		OK(doca_comch_server_task_send_set_conf(server, on_sent, on_sent, 16));
		OK(doca_comch_server_event_msg_recv_register(server, on_message));
		OK(doca_comch_server_event_connection_status_changed_register(server, on_change, on_change));
		ctx = doca_comch_server_as_ctx(server);
	} else {
		OK(doca_comch_client_create(dev, argv[2], &client));
		OK(doca_comch_client_task_send_set_conf(client, on_sent, on_sent, 16));
		OK(doca_comch_client_event_msg_recv_register(client, on_message));
		ctx = doca_comch_client_as_ctx(client);
	}
	OK(doca_pe_connect_ctx(pe, ctx));
	if (serves) {
		OK(doca_ctx_start(ctx));
		puts("listening");
		fflush(stdout);
		while (received < MESSAGES || ended == 0)
			wait_for_progress();
	} else {
		IS(DOCA_ERROR_IN_PROGRESS, doca_ctx_start(ctx));
		while (state != DOCA_CTX_STATE_RUNNING) {
			wait_for_progress();
			OK(doca_ctx_get_state(ctx, &state));
		}
		OK(doca_comch_client_get_connection(client, &peer));
		while (received < MESSAGES) {
			unsigned before = received;

			send_number(received);
			while (received == before)
				wait_for_progress();
		}
	}
	/* Sent messages may not have been reported yet. */
	if (doca_ctx_stop(ctx) == DOCA_ERROR_IN_PROGRESS)
		do {
			wait_for_progress();
			OK(doca_ctx_get_state(ctx, &state));
		} while (state != DOCA_CTX_STATE_IDLE);
	if (serves)
		OK(doca_comch_server_destroy(server));
	else
		OK(doca_comch_client_destroy(client));
	OK(doca_pe_destroy(pe));
	if (serves)
		OK(doca_dev_rep_close(rep));
	OK(doca_dev_close(dev));
	return 0;
}
