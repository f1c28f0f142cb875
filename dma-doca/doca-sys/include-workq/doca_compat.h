/* doca_compat.h: macros that mark declarations as used or experimental.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_COMPAT_H
#define DMA_DOCA_WORKQ_COMPAT_H

#define DOCA_USED __attribute__((used))

/* Calls that may change or disappear. A program that uses them defines DOCA_ALLOW_EXPERIMENTAL_API. */
#ifdef DOCA_ALLOW_EXPERIMENTAL_API
#define DOCA_EXPERIMENTAL
#else
#define DOCA_EXPERIMENTAL __attribute__((deprecated("experimental: define DOCA_ALLOW_EXPERIMENTAL_API to use it")))
#endif
#define __DOCA_EXPERIMENTAL DOCA_EXPERIMENTAL

#endif
