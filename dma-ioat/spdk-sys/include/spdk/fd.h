/* spdk/fd.h: File descriptors.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). What
 * each call does stands there; how the stand-in differs, in spdk-emu. */
#ifndef SPDK_FD_H
#define SPDK_FD_H

#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t spdk_fd_get_size(int fd);
uint32_t spdk_fd_get_blocklen(int fd);
int spdk_fd_set_nonblock(int fd);
int spdk_fd_clear_nonblock(int fd);

#ifdef __cplusplus
}
#endif

#endif
