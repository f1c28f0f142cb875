/* doca_common_defines.h: hints for the compiler.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/). */
#ifndef DMA_DOCA_COMMON_DEFINES_H
#define DMA_DOCA_COMMON_DEFINES_H

#define doca_likely(x) __builtin_expect(!!(x), 1)
#define doca_unlikely(x) __builtin_expect(!!(x), 0)

#endif
