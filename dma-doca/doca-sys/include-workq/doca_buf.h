/* doca_buf.h: buffers.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_BUF_H
#define DMA_DOCA_WORKQ_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf;

enum doca_buf_extension {
	DOCA_BUF_EXTENSION_NONE = 0,
#ifdef DOCA_WORKQ_1_5
	DOCA_BUF_EXTENSION_LINKED_LIST = 1 << 0,
#endif
};

DOCA_EXPERIMENTAL
doca_error_t doca_buf_refcount_add(struct doca_buf *buf, uint16_t *refcount);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_refcount_rm(struct doca_buf *buf, uint16_t *refcount);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_get_refcount(struct doca_buf *buf, uint16_t *refcount);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_get_len(const struct doca_buf *buf, size_t *len);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_get_head(const struct doca_buf *buf, void **head);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_get_data_len(const struct doca_buf *buf, size_t *data_len);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_get_data(const struct doca_buf *buf, void **data);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_set_data(struct doca_buf *buf, void *data, size_t data_len);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_list_next(struct doca_buf *buf, struct doca_buf **next_buf);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_list_last(struct doca_buf *buf, struct doca_buf **last_buf);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_list_is_last(const struct doca_buf *buf, bool *is_last);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_list_is_first(const struct doca_buf *buf, bool *is_first);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_list_num_elements(const struct doca_buf *buf, uint32_t *num_elements);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_list_chain(struct doca_buf *list1, struct doca_buf *list2);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_list_unchain(struct doca_buf *list1, struct doca_buf *list2);

#ifdef DOCA_WORKQ_2_2
DOCA_EXPERIMENTAL
doca_error_t doca_buf_reset_data_len(struct doca_buf *buf);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_is_in_list(const struct doca_buf *buf, uint8_t *is_in_list);
#endif

#ifdef __cplusplus
}
#endif

#endif
