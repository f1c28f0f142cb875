/* doca_cc_producer.h: Producers, which send messages from buffers of the program.
 *
 * Written for this project from the names, types and numbers of DOCA 2.5, as its public headers have them. doca-emu
 * states where the stand-in differs. */
#ifndef DMA_DOCA_CC_PRODUCER_H
#define DMA_DOCA_CC_PRODUCER_H

#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf;
struct doca_cc_connection;
struct doca_cc_producer;
struct doca_cc_producer_send_task;
struct doca_ctx;
struct doca_devinfo;
struct doca_task;

typedef void (*doca_cc_producer_send_task_comp_handler)(struct doca_cc_producer_send_task *task,
	union doca_data task_user_data, union doca_data ctx_user_data);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_producer_create(struct doca_cc_connection *cc_connection, struct doca_cc_producer **producer);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_producer_destroy(struct doca_cc_producer *producer);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_cap_is_producer_supported(const struct doca_devinfo *devinfo);

/* Numbers of tasks are powers of two, given by their logarithms. */
DOCA_EXPERIMENTAL
doca_error_t doca_cc_producer_cap_get_max_log_num_tasks(const struct doca_devinfo *devinfo,
	size_t *max_log_num_tasks);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_producer_cap_get_max_buf_size(const struct doca_devinfo *devinfo, size_t *max_buf_size);

DOCA_EXPERIMENTAL
struct doca_ctx *doca_cc_producer_as_ctx(struct doca_cc_producer *producer);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_producer_send_task_set_conf(struct doca_cc_producer *producer,
	doca_cc_producer_send_task_comp_handler task_completion_cb,
	doca_cc_producer_send_task_comp_handler task_error_cb, size_t log_num_tasks);

DOCA_EXPERIMENTAL
doca_error_t doca_cc_producer_send_task_alloc_init(struct doca_cc_producer *producer, struct doca_buf *buf,
	int consumer_id, struct doca_cc_producer_send_task **task);

DOCA_EXPERIMENTAL
int doca_cc_producer_send_task_get_consumer_id(struct doca_cc_producer_send_task *task);

DOCA_EXPERIMENTAL
void doca_cc_producer_send_task_set_consumer_id(struct doca_cc_producer_send_task *task, const int consumer_id);

DOCA_EXPERIMENTAL
struct doca_buf *doca_cc_producer_send_task_get_buf(struct doca_cc_producer_send_task *task);

DOCA_EXPERIMENTAL
void doca_cc_producer_send_task_set_buf(struct doca_cc_producer_send_task *task, struct doca_buf *buf);

DOCA_EXPERIMENTAL
struct doca_task *doca_cc_producer_send_task_as_task(struct doca_cc_producer_send_task *task);

#ifdef __cplusplus
}
#endif

#endif
