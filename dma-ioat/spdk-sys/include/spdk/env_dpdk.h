/* spdk/env_dpdk.h: What the environment on DPDK has beyond the others.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). What
 * each call does stands there; how the stand-in differs, in spdk-emu. */
#ifndef SPDK_ENV_DPDK_H
#define SPDK_ENV_DPDK_H

#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

struct spdk_env_dpdk_mem_stats {
	uint64_t heap_totalsz_bytes;
	uint64_t heap_freesz_bytes;
	uint64_t greatest_free_size;
	uint64_t heap_allocsz_bytes;
	uint32_t free_count;
	uint32_t alloc_count;
};

/* Whether the program had set up DPDK before. */
bool spdk_env_dpdk_external_init(void);
int spdk_env_dpdk_get_mem_stats(struct spdk_env_dpdk_mem_stats *stats, uint32_t numa_id);
void spdk_env_dpdk_dump_mem_stats(FILE *file);

#ifdef __cplusplus
}
#endif

#endif
