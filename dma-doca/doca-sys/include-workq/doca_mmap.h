/* doca_mmap.h: memory maps.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_MMAP_H
#define DMA_DOCA_WORKQ_MMAP_H

#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_mmap;

/* Called for each range of memory when its map is destroyed. */
typedef void (doca_mmap_memrange_free_cb_t)(void *addr, size_t len, void *opaque);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_create(const union doca_data *user_data, struct doca_mmap **mmap);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_destroy(struct doca_mmap *mmap);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_start(struct doca_mmap *mmap);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_stop(struct doca_mmap *mmap);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_dev_add(struct doca_mmap *mmap, struct doca_dev *dev);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_dev_rm(struct doca_mmap *mmap, struct doca_dev *dev);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_create_from_export(const union doca_data *user_data, const void *export_desc,
	size_t export_desc_len, struct doca_dev *dev, struct doca_mmap **mmap);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_user_data(struct doca_mmap *mmap, union doca_data *user_data);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_max_num_devices(struct doca_mmap *mmap, uint32_t *max_num_devices);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_num_bufs(struct doca_mmap *mmap, uint32_t *num_bufs);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_exported(struct doca_mmap *mmap, uint8_t *exported);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_from_export(struct doca_mmap *mmap, uint8_t *from_export);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_set_max_num_devices(struct doca_mmap *mmap, uint32_t max_num_devices);

#ifdef DOCA_WORKQ_1_5
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_populate(struct doca_mmap *mmap, void *addr, size_t len, size_t pg_sz,
	doca_mmap_memrange_free_cb_t *free_cb, void *opaque);

/* The caller frees the descriptor. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_export(struct doca_mmap *mmap, const struct doca_dev *dev, void **export_desc,
	size_t *export_desc_len);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_max_num_chunks(struct doca_mmap *mmap, uint32_t *max_num_chunks);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_set_max_num_chunks(struct doca_mmap *mmap, uint32_t max_num_chunks);
#endif

#ifdef DOCA_WORKQ_2_2
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_memrange(const struct doca_mmap *mmap, void **addr, size_t *len);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_set_free_cb(struct doca_mmap *mmap, doca_mmap_memrange_free_cb_t *free_cb, void *opaque);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask);

/* The map owns the descriptor, which is valid until the map is stopped. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_export_dpu(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,
	size_t *export_desc_len);

DOCA_EXPERIMENTAL
doca_error_t doca_mmap_export_rdma(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,
	size_t *export_desc_len);
#endif

#ifdef __cplusplus
}
#endif

#endif
