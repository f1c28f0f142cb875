/* doca_compat.h: marks on declarations, and hints for the compiler.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/). */
#ifndef DMA_DOCA_COMPAT_H
#define DMA_DOCA_COMPAT_H

/* In every version from the one that brought it on. */
#define DOCA_STABLE

/* May change or go: a program that calls it says so by defining DOCA_ALLOW_EXPERIMENTAL_API. */
#ifdef DOCA_ALLOW_EXPERIMENTAL_API
#define DOCA_EXPERIMENTAL
#else
#define DOCA_EXPERIMENTAL __attribute__((deprecated("experimental: define DOCA_ALLOW_EXPERIMENTAL_API to use it")))
#endif

#define doca_likely(x) __builtin_expect(!!(x), 1)
#define doca_unlikely(x) __builtin_expect(!!(x), 0)

#endif
