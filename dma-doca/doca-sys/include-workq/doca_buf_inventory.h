/* doca_buf_inventory.h: inventories, which allocate buffers.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_BUF_INVENTORY_H
#define DMA_DOCA_WORKQ_BUF_INVENTORY_H

#include <stddef.h>
#include <stdint.h>

#include <doca_buf.h>
#include <doca_compat.h>
#include <doca_error.h>
#include <doca_mmap.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf_inventory;

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_create(const union doca_data *user_data, size_t num_elements, uint32_t extensions,
	struct doca_buf_inventory **buf_inventory);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_stop(struct doca_buf_inventory *inventory);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_buf_by_args(struct doca_buf_inventory *inventory, struct doca_mmap *mmap, void *addr,
	size_t len, void *data, size_t data_len, struct doca_buf **buf);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory, const struct doca_buf *src_buf,
	struct doca_buf **dst_buf);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_get_num_elements(struct doca_buf_inventory *inventory, uint32_t *num_of_elements);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_get_num_free_elements(struct doca_buf_inventory *inventory,
	uint32_t *num_of_free_elements);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_get_user_data(struct doca_buf_inventory *inventory, union doca_data *user_data);

/* A buffer whose window is the len bytes at addr, without data. */
static inline doca_error_t doca_buf_inventory_buf_by_addr(struct doca_buf_inventory *inventory, struct doca_mmap *mmap,
	void *addr, size_t len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_by_args(inventory, mmap, addr, len, addr, 0, buf);
}

/* A buffer whose window and data are the data_len bytes at data. */
static inline doca_error_t doca_buf_inventory_buf_by_data(struct doca_buf_inventory *inventory, struct doca_mmap *mmap,
	void *data, size_t data_len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_by_args(inventory, mmap, data, data_len, data, data_len, buf);
}

#ifdef __cplusplus
}
#endif

#endif
