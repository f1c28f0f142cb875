/* spdk/env_dpdk.h: Calls that only the DPDK environment has.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_ENV_DPDK_H
#define SPDK_ENV_DPDK_H

#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns true if the program had set up DPDK before. */
bool spdk_env_dpdk_external_init(void);

#ifdef __cplusplus
}
#endif

#endif
