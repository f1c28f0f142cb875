/* spdk/ioat.h: Copies and fills by I/OAT channels.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_IOAT_H
#define SPDK_IOAT_H

#include "spdk/env.h"
#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

struct spdk_ioat_chan;

enum spdk_ioat_dma_capability_flags {
	SPDK_IOAT_ENGINE_COPY_SUPPORTED = 0x1,
	SPDK_IOAT_ENGINE_FILL_SUPPORTED = 0x2,
};

typedef void (*spdk_ioat_req_cb)(void *arg);
typedef bool (*spdk_ioat_probe_cb)(void *cb_ctx, struct spdk_pci_device *pci_dev);
typedef void (*spdk_ioat_attach_cb)(void *cb_ctx, struct spdk_pci_device *pci_dev, struct spdk_ioat_chan *ioat);

int spdk_ioat_probe(void *cb_ctx, spdk_ioat_probe_cb probe_cb, spdk_ioat_attach_cb attach_cb);
void spdk_ioat_detach(struct spdk_ioat_chan *ioat);

uint32_t spdk_ioat_get_max_descriptors(struct spdk_ioat_chan *chan);
uint32_t spdk_ioat_get_dma_capabilities(struct spdk_ioat_chan *chan);

/* Built operations start at the next flush. Submitted operations start at once. */
int spdk_ioat_build_copy(struct spdk_ioat_chan *chan, void *cb_arg, spdk_ioat_req_cb cb_fn,
	void *dst, const void *src, uint64_t nbytes);
int spdk_ioat_submit_copy(struct spdk_ioat_chan *chan, void *cb_arg, spdk_ioat_req_cb cb_fn,
	void *dst, const void *src, uint64_t nbytes);
int spdk_ioat_build_fill(struct spdk_ioat_chan *chan, void *cb_arg, spdk_ioat_req_cb cb_fn,
	void *dst, uint64_t fill_pattern, uint64_t nbytes);
int spdk_ioat_submit_fill(struct spdk_ioat_chan *chan, void *cb_arg, spdk_ioat_req_cb cb_fn,
	void *dst, uint64_t fill_pattern, uint64_t nbytes);
void spdk_ioat_flush(struct spdk_ioat_chan *chan);

int spdk_ioat_process_events(struct spdk_ioat_chan *chan);

#ifdef __cplusplus
}
#endif

#endif
