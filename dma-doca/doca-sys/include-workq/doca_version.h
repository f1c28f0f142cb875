/* doca_version.h: the version that a program was compiled for, and the version of the loaded library.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_VERSION_H
#define DMA_DOCA_WORKQ_VERSION_H

#include <stddef.h>

#include <doca_compat.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef DOCA_WORKQ_1_5
#define DOCA_VER_MAJOR 1
#define DOCA_VER_MINOR 5
#define DOCA_VER_PATCH 55
#define DOCA_VER_STRING "1.5.0055"
#endif
#ifndef DOCA_WORKQ_1_5
#define DOCA_VER_MAJOR 2
#define DOCA_VER_MINOR 2
#define DOCA_VER_PATCH 80
#define DOCA_VER_STRING "2.2.0080"
#endif

/* A version as one number, which can be compared. */
#define DOCA_VERSION_NUM(major, minor, patch) ((size_t)((major) << 24 | (minor) << 16 | (patch)))
#define DOCA_CURRENT_VERSION_NUM DOCA_VERSION_NUM(DOCA_VER_MAJOR, DOCA_VER_MINOR, DOCA_VER_PATCH)

/* The version of these headers. */
static inline const char *doca_version(void)
{
	return DOCA_VER_STRING;
}

#ifdef DOCA_WORKQ_2_2
DOCA_EXPERIMENTAL
const char *doca_version_runtime(void);
#endif

#ifdef __cplusplus
}
#endif

#endif
