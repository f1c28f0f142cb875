/* DOCA 1.5, 2.2 and 2.5: the comm channel between two processes: limits, messages, full queues, waiting by file descriptor, ends.
 * With the arguments serve NAME or connect NAME, it is one side of a pair whose other side has another generation. */
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doca_comm_channel.h>

#include "check.h"

typedef struct doca_comm_channel_ep_t ep_t;
typedef struct doca_comm_channel_addr_t peer_t;

enum { SIZE = 1000, MESSAGES = 300, MOST = 1000000, PATIENCE = 60000 };

#if DOCA_VER_MAJOR < 2
#define WRONG_SIDE DOCA_ERROR_NOT_PERMITTED
#else
#define WRONG_SIDE DOCA_ERROR_NOT_SUPPORTED
#endif

static char buffer[SIZE], name[64];
static int heard, told;

/* Each process sends words to the other one, and waits for words. */
static void tell(int word)
{
	CHECK(write(told, &word, sizeof(word)) == (ssize_t)sizeof(word));
}

static int hear(void)
{
	int word = 0;

	CHECK(read(heard, &word, sizeof(word)) == (ssize_t)sizeof(word));
	return word;
}

static void wait_for(doca_event_channel_t channel)
{
	struct pollfd waits = {channel, POLLIN, 0};

	CHECK(poll(&waits, 1, PATIENCE) == 1);
}

static int is_readable(doca_event_channel_t channel)
{
	struct pollfd waits = {channel, POLLIN, 0};

	return poll(&waits, 1, 0);
}

static ep_t *endpoint(struct doca_dev *dev)
{
	ep_t *ep;
	uint16_t size = 0;

	OK(doca_comm_channel_ep_create(&ep));
	OK(doca_comm_channel_ep_set_device(ep, dev));
	OK(doca_comm_channel_ep_set_max_msg_size(ep, SIZE));
	OK(doca_comm_channel_ep_set_send_queue_size(ep, 10));
	OK(doca_comm_channel_ep_set_recv_queue_size(ep, 16));
	OK(doca_comm_channel_ep_get_max_msg_size(ep, &size));
	CHECK(size == SIZE);
	OK(doca_comm_channel_ep_get_send_queue_size(ep, &size));
	CHECK(size == 16);
	OK(doca_comm_channel_ep_get_recv_queue_size(ep, &size));
	CHECK(size == 16);
	return ep;
}

/* Sleeps until a message arrives. Returns an error if the connection has ended. */
static doca_error_t receive(ep_t *ep, size_t *len, peer_t **peer)
{
	doca_event_channel_t channel;
	doca_error_t result;

	OK(doca_comm_channel_ep_get_event_channel(ep, NULL, &channel));
	while (*len = SIZE, (result = doca_comm_channel_ep_recvfrom(ep, buffer, len, 0, peer)) == DOCA_ERROR_AGAIN) {
		CHECK(*len == SIZE);
		OK(doca_comm_channel_ep_event_handle_arm_recv(ep));
		wait_for(channel);
	}
	return result;
}

static void send_all(ep_t *ep, peer_t *peer, const void *message, size_t len)
{
	doca_event_channel_t channel;
	doca_error_t result;

	OK(doca_comm_channel_ep_get_event_channel(ep, &channel, NULL));
	while ((result = doca_comm_channel_ep_sendto(ep, message, len, DOCA_CC_MSG_FLAG_NONE, peer)) == DOCA_ERROR_AGAIN) {
		OK(doca_comm_channel_ep_event_handle_arm_send(ep));
		wait_for(channel);
	}
	OK(result);
}

static peer_t *connect_to(ep_t *ep)
{
	doca_event_channel_t channel;
	doca_error_t result;
	peer_t *peer = NULL;

	OK(doca_comm_channel_ep_connect(ep, name, &peer));
	OK(doca_comm_channel_ep_get_event_channel(ep, NULL, &channel));
	while ((result = doca_comm_channel_peer_addr_update_info(peer)) == DOCA_ERROR_CONNECTION_INPROGRESS) {
		OK(doca_comm_channel_ep_event_handle_arm_recv(ep));
		wait_for(channel);
	}
	OK(result);
	return peer;
}

/* Makes message number n. */
static size_t message(char *to, unsigned n)
{
	size_t len = 1 + n * 37 % SIZE;

	memset(to, (int)n, len);
	return len;
}

static void limits(struct doca_dev *dev, struct doca_dev *host)
{
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	struct doca_dev *same = dev;
	struct doca_dev_rep *rep = NULL;
	uint32_t value = 0;
	uint16_t size = 0;
	char *too_long;
	peer_t *peer = NULL;
	ep_t *ep;

	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_get_max_service_name_len(NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_get_max_message_size(NULL, &value));
	OK(doca_comm_channel_get_max_send_queue_size(info, &value));
	CHECK(value >= 16);
	OK(doca_comm_channel_get_max_recv_queue_size(info, &value));
	CHECK(value >= 16);
	OK(doca_comm_channel_get_service_max_num_connections(info, &value));
	CHECK(value >= 2);
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_get_service_max_num_connections(doca_dev_as_devinfo(host), &value));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_create(NULL));
	IS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_destroy(NULL));

	OK(doca_comm_channel_ep_create(&ep));
	OK(doca_comm_channel_ep_get_device(ep, &same));
	CHECK(same == NULL);
	IS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_listen(ep, name));
	IS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_connect(ep, name, &peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_set_device(ep, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_set_max_msg_size(ep, 0));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_set_send_queue_size(ep, 0));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_set_recv_queue_size(ep, 40000));
	OK(doca_comm_channel_ep_set_device(ep, dev));
	OK(doca_comm_channel_get_max_message_size(info, &value));
	OK(doca_comm_channel_ep_get_max_msg_size(ep, &size));
	CHECK(size == value);
	IS(WRONG_SIDE, doca_comm_channel_ep_connect(ep, name, &peer));
	IS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_listen(ep, name));
	OK(doca_comm_channel_ep_set_device(ep, host));
	IS(WRONG_SIDE, doca_comm_channel_ep_listen(ep, name));
	IS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_ep_connect(ep, name, &peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_connect(ep, name, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_connect(ep, NULL, &peer));
	OK(doca_comm_channel_get_max_service_name_len(&value));
	too_long = (char *)calloc(1, value + 1);
	CHECK(too_long != NULL);
	memset(too_long, 'n', value);
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_connect(ep, too_long, &peer));
	free(too_long);
	OK(doca_comm_channel_ep_set_max_msg_size(ep, UINT16_MAX));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_connect(ep, name, &peer));
	OK(doca_comm_channel_ep_get_device_rep(ep, &rep));
	CHECK(rep == NULL && peer == NULL);
	OK(doca_comm_channel_ep_destroy(ep));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_listen(NULL, name));
}

static void serve(void)
{
	struct doca_dev *dev = open_device(DPU), *host = open_device(HOST);
	struct doca_dev_rep *rep = open_representor(dev, HOST), *same = NULL;
	doca_event_channel_t changes, channel;
	ep_t *ep, *second;
	peer_t *peer, *from, **list = NULL;
	uint64_t value = 1, bytes = 0;
	uint32_t count = 7;
	size_t len;

	limits(dev, host);
	ep = endpoint(dev);
	OK(doca_comm_channel_ep_set_device_rep(ep, rep));
	OK(doca_comm_channel_ep_get_device_rep(ep, &same));
	CHECK(same == rep);
	len = SIZE;
	IS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_recvfrom(ep, buffer, &len, 0, &peer));
	IS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_get_event_channel(ep, NULL, &channel));
	OK(doca_comm_channel_ep_listen(ep, name));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_comm_channel_ep_listen(ep, name));
	IS(DOCA_ERROR_BAD_STATE, doca_comm_channel_ep_set_max_msg_size(ep, 10));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_get_event_channel(ep, NULL, NULL));
	second = endpoint(dev);
	OK(doca_comm_channel_ep_set_device_rep(second, rep));
	IS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_ep_listen(second, name));
	OK(doca_comm_channel_ep_destroy(second));
	IS(DOCA_ERROR_AGAIN, doca_comm_channel_ep_recvfrom(ep, buffer, &len, 0, &peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_recvfrom(ep, buffer, &len, 1, &peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_recvfrom(ep, NULL, &len, 0, &peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_recvfrom(ep, buffer, NULL, 0, &peer));
	IS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_sendto(ep, "x", 1, 0, NULL));
	OK(doca_comm_channel_ep_get_service_event_channel(ep, &changes));
	CHECK(!is_readable(changes));
	tell(0);

	/* A client, and its messages in order. */
	wait_for(changes);
	OK(receive(ep, &len, &peer));
	CHECK(len == 5 && memcmp(buffer, "hello", 5) == 0);
	OK(doca_comm_channel_peer_addr_get_user_data(peer, &value));
	CHECK(value == 0);
	OK(doca_comm_channel_peer_addr_set_user_data(peer, 77));
	OK(doca_comm_channel_ep_update_service_state_info(ep));
	CHECK(!is_readable(changes));
	OK(doca_comm_channel_ep_get_peer_addr_list(ep, &list, &count));
	CHECK(count == 1 && list[0] == peer);
	OK(doca_comm_channel_ep_get_pending_connections(ep, &count));
	CHECK(count == 0);
	for (unsigned n = 0; n < MESSAGES; n++) {
		char wanted[SIZE];
		size_t want = message(wanted, n), room;

		OK(receive(ep, &len, &from));
		CHECK(from == peer && len == want && memcmp(buffer, wanted, len) == 0);
		bytes += len;
		/* A message that does not fit into the buffer stays in the queue. */
		if (n + 1 == MESSAGES / 2) {
			want = message(wanted, n + 1);
			room = want - 1;
			OK(doca_comm_channel_ep_get_event_channel(ep, NULL, &channel));
			OK(doca_comm_channel_ep_event_handle_arm_recv(ep));
			wait_for(channel);
			IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_recvfrom(ep, buffer, &room, 0, &from));
			CHECK(room == want - 1);
		}
	}
	OK(doca_comm_channel_peer_addr_get_recv_messages(peer, &value));
	CHECK(value <= MESSAGES + 1);
	OK(doca_comm_channel_peer_addr_update_info(peer));
	OK(doca_comm_channel_peer_addr_get_recv_messages(peer, &value));
	CHECK(value == MESSAGES + 1);
	OK(doca_comm_channel_peer_addr_get_recv_bytes(peer, &value));
	CHECK(value == bytes + 5);
	OK(doca_comm_channel_peer_addr_get_user_data(peer, &value));
	CHECK(value == 77);
	send_all(ep, peer, "thanks", 6);
	tell(0);

	/* The client sends until the queue is full, and waits for room. */
	for (int left = hear(); left >= 0; left--)
		OK(receive(ep, &len, &from));
	CHECK(len == 3 && memcmp(buffer, "end", 3) == 0);

	/* Another client connects. Then the first one disconnects with unread messages. */
	tell(0);
	OK(receive(ep, &len, &from));
	CHECK(from != peer && len == 6);
	for (int n = 0; n < 10; n++)
		send_all(ep, peer, buffer, SIZE);
	OK(doca_comm_channel_ep_update_service_state_info(ep));
	OK(doca_comm_channel_ep_get_peer_addr_list(ep, &list, &count));
	CHECK(count == 2);
	tell(0);
	do {
		wait_for(changes);
		OK(doca_comm_channel_ep_update_service_state_info(ep));
		OK(doca_comm_channel_ep_get_peer_addr_list(ep, &list, &count));
	} while (count == 2);
	CHECK(count == 1 && list[0] == from);
	IS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_peer_addr_update_info(peer));
	IS(DOCA_ERROR_CONNECTION_RESET, doca_comm_channel_ep_sendto(ep, "x", 1, 0, peer));
	OK(doca_comm_channel_ep_disconnect(ep, peer));
	IS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_disconnect(ep, NULL));

	/* The service ends while the other client waits. */
	hear();
	send_all(ep, from, "last", 4);
	OK(doca_comm_channel_ep_destroy(ep));
	OK(doca_dev_rep_close(rep));
	OK(doca_dev_close(dev));
	OK(doca_dev_close(host));
}

static void be_client(void)
{
	struct doca_dev *dev = open_device(HOST);
	doca_event_channel_t channel;
	ep_t *ep = endpoint(dev), *second = endpoint(dev);
	peer_t *peer, *from, *other;
	doca_error_t result;
	uint64_t value = 0;
	uint32_t count;
	size_t len;
	int sent = 0;

	hear();
	peer = connect_to(ep);
	IS(DOCA_ERROR_NOT_PERMITTED, doca_comm_channel_ep_connect(ep, name, &from));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_ep_update_service_state_info(ep));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_ep_get_pending_connections(ep, &count));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_comm_channel_ep_get_service_event_channel(ep, &channel));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_sendto(ep, buffer, SIZE + 1, 0, peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_sendto(ep, buffer, 0, 0, peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_sendto(ep, NULL, 1, 0, peer));
	IS(DOCA_ERROR_INVALID_VALUE, doca_comm_channel_ep_sendto(ep, buffer, 1, 1, peer));
	IS(DOCA_ERROR_NOT_CONNECTED, doca_comm_channel_ep_sendto(second, buffer, 1, 0, peer));
	send_all(ep, peer, "hello", 5);
	for (unsigned n = 0; n < MESSAGES; n++)
		send_all(ep, peer, buffer, message(buffer, n));
	OK(receive(ep, &len, &from));
	CHECK(from == peer && len == 6 && memcmp(buffer, "thanks", 6) == 0);
	OK(doca_comm_channel_peer_addr_update_info(peer));
	OK(doca_comm_channel_peer_addr_get_send_messages(peer, &value));
	CHECK(value == MESSAGES + 1);
	OK(doca_comm_channel_peer_addr_get_send_bytes(peer, &value));
	CHECK(value > MESSAGES);
	OK(doca_comm_channel_peer_addr_get_send_in_flight_messages(peer, &value));
	CHECK(value == 0);

	hear();
	while ((result = doca_comm_channel_ep_sendto(ep, buffer, SIZE, 0, peer)) == DOCA_SUCCESS && sent < MOST)
		sent++;
	IS(DOCA_ERROR_AGAIN, result);
	OK(doca_comm_channel_ep_get_event_channel(ep, &channel, NULL));
	CHECK(!is_readable(channel));
	tell(sent);
	send_all(ep, peer, "end", 3);

	hear();
	other = connect_to(second);
	send_all(second, other, "second", 6);
	hear();
	OK(doca_comm_channel_ep_destroy(ep));

	tell(0);
	OK(receive(second, &len, &from));
	CHECK(from == other && len == 4 && memcmp(buffer, "last", 4) == 0);
	from = NULL;
	IS(DOCA_ERROR_CONNECTION_RESET, receive(second, &len, &from));
	CHECK(from == other);
	IS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_peer_addr_update_info(other));
	IS(DOCA_ERROR_CONNECTION_RESET, doca_comm_channel_ep_sendto(second, "x", 1, 0, other));
	OK(doca_comm_channel_ep_disconnect(second, other));
	IS(DOCA_ERROR_CONNECTION_ABORTED, doca_comm_channel_ep_connect(second, name, &other));
	OK(doca_comm_channel_ep_destroy(second));
	OK(doca_dev_close(dev));
}

/* One side of a mixed pair: the client sends numbered messages, and the service returns them. */
static void one_side(int is_service)
{
	struct doca_dev *dev = open_device(is_service ? DPU : HOST);
	struct doca_dev_rep *rep = is_service ? open_representor(dev, HOST) : NULL;
	ep_t *ep = endpoint(dev);
	peer_t *peer = NULL;
	size_t len;

	if (is_service) {
		OK(doca_comm_channel_ep_set_device_rep(ep, rep));
		OK(doca_comm_channel_ep_listen(ep, name));
		puts("listening");
		fflush(stdout);
	} else
		peer = connect_to(ep);
	for (unsigned n = 0; n < MESSAGES; n++) {
		char wanted[SIZE];
		size_t want = message(wanted, n);

		if (!is_service)
			send_all(ep, peer, wanted, want);
		OK(receive(ep, &len, &peer));
		CHECK(len == want && memcmp(buffer, wanted, len) == 0);
		if (is_service)
			send_all(ep, peer, buffer, len);
	}
	/* The client disconnects first. */
	if (is_service)
		while (doca_comm_channel_peer_addr_update_info(peer) == DOCA_SUCCESS) {
			doca_event_channel_t changes;

			OK(doca_comm_channel_ep_get_service_event_channel(ep, &changes));
			wait_for(changes);
		}
	OK(doca_comm_channel_ep_disconnect(ep, peer));
	OK(doca_comm_channel_ep_destroy(ep));
	if (is_service)
		OK(doca_dev_rep_close(rep));
	OK(doca_dev_close(dev));
}

int main(int argc, char **argv)
{
	int down[2], up[2], status = 0;
	pid_t child;

	if (argc == 3) {
		snprintf(name, sizeof(name), "%s", argv[2]);
		one_side(strcmp(argv[1], "serve") == 0);
		return 0;
	}
	snprintf(name, sizeof(name), "old channel %d", (int)getpid());
	CHECK(pipe(down) == 0 && pipe(up) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(down[1]);
		close(up[0]);
		heard = down[0];
		told = up[1];
		be_client();
		return 0;
	}
	close(down[0]);
	close(up[1]);
	heard = up[0];
	told = down[1];
	serve();
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
