/* doca_dma.h: copies by the device.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_DMA_H
#define DMA_DOCA_WORKQ_DMA_H

#include <inttypes.h>

#include <doca_buf.h>
#include <doca_compat.h>
#include <doca_ctx.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_dma;

enum doca_dma_job_types {
	DOCA_DMA_JOB_MEMCPY = DOCA_ACTION_DMA_FIRST + 1,
};

/* Copies the source's data after the destination's data. */
struct doca_dma_job_memcpy {
	struct doca_job base;
	struct doca_buf *dst_buff;
	struct doca_buf const *src_buff;
};

/* The event's result holds this struct. */
struct doca_dma_memcpy_result {
	doca_error_t result;
};

DOCA_EXPERIMENTAL
doca_error_t doca_dma_create(struct doca_dma **dma);

DOCA_EXPERIMENTAL
doca_error_t doca_dma_destroy(struct doca_dma *dma);

DOCA_EXPERIMENTAL
struct doca_ctx *doca_dma_as_ctx(struct doca_dma *dma);

DOCA_EXPERIMENTAL
doca_error_t doca_dma_job_get_supported(struct doca_devinfo *devinfo, enum doca_dma_job_types job_type);

DOCA_EXPERIMENTAL
doca_error_t doca_dma_get_max_list_buf_num_elem(const struct doca_devinfo *devinfo, uint32_t *max_list_num_elem);

DOCA_EXPERIMENTAL
doca_error_t doca_dma_get_max_buf_size(const struct doca_devinfo *devinfo, uint64_t *buf_size);

#ifdef __cplusplus
}
#endif

#endif
