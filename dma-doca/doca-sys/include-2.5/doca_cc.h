/* doca_cc.h: A channel of messages between a DPU (server) and its host (client).
 *
 * Written for this project from the names, types and numbers of DOCA 2.5, as its public headers have them. doca-emu
 * states where the stand-in differs. */
#ifndef DMA_DOCA_CC_H
#define DMA_DOCA_CC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_cc_client;
struct doca_cc_connection;
struct doca_cc_event_connection_status_changed;
struct doca_cc_event_consumer;
struct doca_cc_event_msg_recv;
struct doca_cc_send_task;
struct doca_cc_server;
struct doca_ctx;
struct doca_dev;
struct doca_dev_rep;
struct doca_devinfo;
struct doca_task;

enum doca_cc_counter {
	DOCA_CC_COUNTER_SENT_MESSAGES = 1,
	DOCA_CC_COUNTER_SENT_BYTES = 2,
	DOCA_CC_COUNTER_RECV_MESSAGES = 3,
	DOCA_CC_COUNTER_RECV_BYTES = 4,
};

typedef void (*doca_cc_send_task_comp_handler)(struct doca_cc_send_task *task, union doca_data task_user_data,
	union doca_data ctx_user_data);
typedef void (*doca_cc_event_msg_recv_cb_t)(struct doca_cc_event_msg_recv *event, uint8_t *recv_buffer,
	size_t msg_len, struct doca_cc_connection *cc_connection);
typedef void (*doca_cc_event_connection_status_changed_cb_t)(struct doca_cc_event_connection_status_changed *event,
	struct doca_cc_connection *cc_connection, bool change_successful);
typedef void (*doca_cc_event_consumer_cb_t)(struct doca_cc_event_consumer *event,
	struct doca_cc_connection *cc_connection, uint32_t id);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_connection_set_user_data(struct doca_cc_connection *connection, union doca_data user_data);

DOCA_EXPERIMENTAL
union doca_data doca_cc_connection_get_user_data(const struct doca_cc_connection *connection);

DOCA_EXPERIMENTAL
struct doca_cc_server *doca_cc_server_get_server_ctx(const struct doca_cc_connection *connection);

DOCA_EXPERIMENTAL
struct doca_cc_client *doca_cc_client_get_client_ctx(const struct doca_cc_connection *connection);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_get_max_name_len(const struct doca_devinfo *devinfo, uint32_t *max_name_len);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_get_max_msg_size(const struct doca_devinfo *devinfo, size_t *size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_get_max_recv_queue_size(const struct doca_devinfo *devinfo, size_t *size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_get_max_clients(const struct doca_devinfo *devinfo, size_t *num_clients);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_get_max_send_tasks(const struct doca_devinfo *devinfo, size_t *max_send_tasks);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_create(struct doca_dev *dev, struct doca_dev_rep *repr, const char *name,
	struct doca_cc_server **cc_server);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_create(struct doca_dev *dev, const char *name, struct doca_cc_client **cc_client);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_destroy(struct doca_cc_server *cc_server);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_destroy(struct doca_cc_client *cc_client);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_server_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_client_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_set_max_msg_size(struct doca_cc_server *cc_server, size_t size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_set_max_msg_size(struct doca_cc_client *cc_client, size_t size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_get_max_msg_size(const struct doca_cc_server *cc_server, size_t *size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_get_max_msg_size(const struct doca_cc_client *cc_client, size_t *size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_set_recv_queue_size(struct doca_cc_server *cc_server, size_t size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_set_recv_queue_size(struct doca_cc_client *cc_client, size_t size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_get_recv_queue_size(const struct doca_cc_server *cc_server, size_t *size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_get_recv_queue_size(const struct doca_cc_client *cc_client, size_t *size);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_get_device(const struct doca_cc_server *cc_server, struct doca_dev **dev);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_get_device(const struct doca_cc_client *cc_client, struct doca_dev **dev);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_get_device_repr(const struct doca_cc_server *cc_server, struct doca_dev_rep **repr);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_get_connection(const struct doca_cc_client *cc_client,
	struct doca_cc_connection **connection);

DOCA_EXPERIMENTAL
struct doca_ctx *doca_cc_server_as_ctx(struct doca_cc_server *cc_server);

DOCA_EXPERIMENTAL
struct doca_ctx *doca_cc_client_as_ctx(struct doca_cc_client *cc_client);

/* The number of tasks is a power of two, given by its logarithm. */
DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_send_task_set_conf(struct doca_cc_server *cc_server,
	doca_cc_send_task_comp_handler task_completion_cb, doca_cc_send_task_comp_handler task_error_cb,
	uint8_t log_num_tasks);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_send_task_set_conf(struct doca_cc_client *cc_client,
	doca_cc_send_task_comp_handler task_completion_cb, doca_cc_send_task_comp_handler task_error_cb,
	uint8_t log_num_tasks);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_send_task_alloc_init(struct doca_cc_server *cc_server,
	struct doca_cc_connection *peer, const void *msg, size_t len, struct doca_cc_send_task **task);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_send_task_alloc_init(struct doca_cc_client *cc_client,
	struct doca_cc_connection *peer, const void *msg, size_t len, struct doca_cc_send_task **task);

DOCA_EXPERIMENTAL
struct doca_task *doca_cc_send_task_as_task(struct doca_cc_send_task *task);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_event_msg_recv_register(struct doca_cc_server *cc_server,
	doca_cc_event_msg_recv_cb_t recv_event_cb);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_event_msg_recv_register(struct doca_cc_client *cc_client,
	doca_cc_event_msg_recv_cb_t recv_event_cb);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_event_connection_register(struct doca_cc_server *cc_server,
	doca_cc_event_connection_status_changed_cb_t connect_event_cb,
	doca_cc_event_connection_status_changed_cb_t disconnect_event_cb);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_server_event_consumer_register(struct doca_cc_server *cc_server,
	doca_cc_event_consumer_cb_t new_consumer_event_cb,
	doca_cc_event_consumer_cb_t expired_consumer_event_cb);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_client_event_consumer_register(struct doca_cc_client *cc_client,
	doca_cc_event_consumer_cb_t new_consumer_event_cb,
	doca_cc_event_consumer_cb_t expired_consumer_event_cb);

/* Counters have the values of the last update. */
DOCA_EXPERIMENTAL
doca_error_t doca_cc_connection_update_info(struct doca_cc_connection *cc_connection);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_connection_get_counter(const struct doca_cc_connection *cc_connection,
	enum doca_cc_counter counter_type, uint64_t *counter_value);

#ifdef __cplusplus
}
#endif

#endif
