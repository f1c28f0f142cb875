/* doca_version.h: The version that a program was compiled for, and the version of the loaded library.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/), which describes the calls. doca-emu states where the stand-in differs.
 *
 * Declarations that only DOCA 2.5 has are between #ifdef DOCA_TASKS_2_5 and #endif. An installed tree has no such marks. */
#ifndef DMA_DOCA_VERSION_H
#define DMA_DOCA_VERSION_H

#include <stdint.h>
#include <stddef.h>

#include <doca_compat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DOCA_VERSION_MAJOR 3
#define DOCA_VERSION_MINOR 0
#define DOCA_VERSION_PATCH 58
#define DOCA_VERSION_STRING "3.0.0058"

DOCA_EXPERIMENTAL
const char *doca_version_runtime(void);

#define DOCA_VER_STRING DOCA_VERSION_STRING

#ifdef DOCA_TASKS_2_5
#define DOCA_VER_MAJOR DOCA_VERSION_MAJOR
#define DOCA_VER_MINOR DOCA_VERSION_MINOR
#define DOCA_VER_PATCH DOCA_VERSION_PATCH
#define DOCA_VERSION_NUM(major, minor, patch) DOCA_VERSION_CALC_EXACT(major, minor, patch)
#define DOCA_CURRENT_VERSION_NUM DOCA_VERSION_EXACT
#endif

/* A version as one number, which can be compared. The patch number of an official version is a multiple of 1000;
 * other numbers are builds before the next version. */
#define DOCA_VERSION_CALC_EXACT(major, minor, patch) ((size_t)((major) << 24 | (minor) << 16 | (patch)))
#define DOCA_VERSION_EXACT DOCA_VERSION_CALC_EXACT(DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH)
#define DOCA_VERSION_CALC(major, minor, patch) DOCA_VERSION_CALC_EXACT(major, minor, (patch) * 1000)
#define DOCA_VERSION_OFFICIAL DOCA_VERSION_CALC(DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH)
#define DOCA_VERSION_EQ_CURRENT(major, minor, patch) (DOCA_VERSION_CALC(major, minor, patch) == DOCA_VERSION_OFFICIAL)
#define DOCA_VERSION_LTE_CURRENT(major, minor, patch) (DOCA_VERSION_CALC(major, minor, patch) <= DOCA_VERSION_OFFICIAL)

/* The version of these headers. */
DOCA_EXPERIMENTAL
static inline const char *doca_version(void)
{
	return DOCA_VERSION_STRING;
}

#ifdef __cplusplus
}
#endif

#endif
