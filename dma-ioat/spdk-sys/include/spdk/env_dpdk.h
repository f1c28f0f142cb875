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

/* Whether the program had set up DPDK before. */
bool spdk_env_dpdk_external_init(void);

#ifdef __cplusplus
}
#endif

#endif
