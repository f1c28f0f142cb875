/* doca_dma.h: copies by the device.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Paragraphs of
 * one generation only stand between the #ifdef of its macro and an #endif. An installed tree has its own, without these. */
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

/* A copy of the source's data, behind the destination's. */
struct doca_dma_job_memcpy {
	struct doca_job base;
	struct doca_buf *dst_buff;
	struct doca_buf const *src_buff;
};

/* Lies in the event's result. */
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
