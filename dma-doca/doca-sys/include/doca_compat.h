/* doca_compat.h: macros that mark declarations as stable or experimental.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/). */
#ifndef DMA_DOCA_COMPAT_H
#define DMA_DOCA_COMPAT_H

#include <doca_config.h>

#define DOCA_USED __attribute__((used))

/* Stable calls, which all later versions have too. */
#define DOCA_STABLE

/* Calls that may change or disappear. A program that uses them defines DOCA_ALLOW_EXPERIMENTAL_API. */
#ifdef DOCA_ALLOW_EXPERIMENTAL_API
#define DOCA_EXPERIMENTAL
#else
#define DOCA_EXPERIMENTAL __attribute__((deprecated("experimental: define DOCA_ALLOW_EXPERIMENTAL_API to use it")))
#endif

/* Calls that will disappear. A program that uses them defines DOCA_ALLOW_DEPRECATED_API. */
#ifdef DOCA_ALLOW_DEPRECATED_API
#define DOCA_DEPRECATED
#else
#define DOCA_DEPRECATED __attribute__((deprecated("deprecated: define DOCA_ALLOW_DEPRECATED_API to use it")))
#endif

/* Programs rely on these includes of the SDK's headers. */
#ifdef DOCA_COMPAT_HELPERS
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <doca_version.h>

/* For structs of a program. The first field, DOCA_STRUCT_START, holds the version that the struct was compiled for. */
#define DOCA_STRUCT_START size_t __doca_api_version
#define DOCA_STRUCT_GET_VERSION(ptr) ((ptr)->__doca_api_version)
#define DOCA_STRUCT_CTOR_LIST_START .__doca_api_version = DOCA_VERSION_EXACT
#define DOCA_STRUCT_DEF(type, name) struct type name = { DOCA_STRUCT_CTOR_LIST_START }
#define DOCA_STRUCT_CTOR(value) (DOCA_STRUCT_GET_VERSION(&(value)) = DOCA_VERSION_EXACT)
#define DOCA_STRUCT_PTR_CTOR(ptr) DOCA_STRUCT_CTOR(*(ptr))
#define DOCA_STRUCT_MEMSET_CTOR(value)               \
	do {                                         \
		memset(&(value), 0, sizeof(value));  \
		DOCA_STRUCT_CTOR(value);             \
	} while (0)
#define DOCA_STRUCT_PTR_MEMSET_CTOR(ptr) DOCA_STRUCT_MEMSET_CTOR(*(ptr))
#endif

#endif
