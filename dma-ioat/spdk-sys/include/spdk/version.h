/* spdk/version.h: The release of these headers.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_VERSION_H
#define SPDK_VERSION_H

#define SPDK_VERSION_MAJOR 26
#define SPDK_VERSION_MINOR 9
#define SPDK_VERSION_PATCH 0
#define SPDK_VERSION_SUFFIX "-emu"

/* Two decimal digits for each part. */
#define SPDK_VERSION_NUM(major, minor, patch) (((major) * 100 + (minor)) * 100 + (patch))
#define SPDK_VERSION SPDK_VERSION_NUM(SPDK_VERSION_MAJOR, SPDK_VERSION_MINOR, SPDK_VERSION_PATCH)

#define SPDK_VERSION_MAJOR_STRING "26"
#define SPDK_VERSION_MINOR_STRING ".09"
#define SPDK_VERSION_PATCH_STRING ""
#define SPDK_VERSION_STRING "SPDK v26.09-emu"

#endif
