/* doca_compat.h: marks on declarations.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/). */
#ifndef DMA_DOCA_COMPAT_H
#define DMA_DOCA_COMPAT_H

#include <doca_config.h>

#define DOCA_USED __attribute__((used))

/* In every version from the one that brought it on. */
#define DOCA_STABLE

/* May change or go: a program that calls it says so by defining DOCA_ALLOW_EXPERIMENTAL_API. */
#ifdef DOCA_ALLOW_EXPERIMENTAL_API
#define DOCA_EXPERIMENTAL
#else
#define DOCA_EXPERIMENTAL __attribute__((deprecated("experimental: define DOCA_ALLOW_EXPERIMENTAL_API to use it")))
#endif

/* Will go: a program that calls it says so by defining DOCA_ALLOW_DEPRECATED_API. */
#ifdef DOCA_ALLOW_DEPRECATED_API
#define DOCA_DEPRECATED
#else
#define DOCA_DEPRECATED __attribute__((deprecated("deprecated: define DOCA_ALLOW_DEPRECATED_API to use it")))
#endif

/* Programs rely on the SDK's headers for these. */
#ifdef DOCA_COMPAT_HELPERS
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <doca_version.h>
#endif

#endif
