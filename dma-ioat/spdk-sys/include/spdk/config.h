/* spdk/config.h: What the library was built with. Only what programs for I/OAT ask for.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). What
 * each call does stands there; how the stand-in differs, in spdk-emu. */
#ifndef SPDK_CONFIG_H
#define SPDK_CONFIG_H

/* The directory of the environment in SPDK's sources. Programs read its last part as a name. */
#define SPDK_CONFIG_ENV /spdk/lib/env_dpdk
#define SPDK_CONFIG_SHARED 1

#endif
