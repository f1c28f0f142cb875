/* spdk/config.h: Build options of the library, as far as programs for I/OAT use them.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_CONFIG_H
#define SPDK_CONFIG_H

/* The directory of the environment in SPDK's sources. Programs read its last part as a name. */
#define SPDK_CONFIG_ENV /spdk/lib/env_dpdk
#define SPDK_CONFIG_SHARED 1

#endif
