/* spdk/memory.h: Page sizes.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_MEMORY_H
#define SPDK_MEMORY_H

#include "spdk/stdinc.h"

#define VFIO_ENABLED 1

#define SHIFT_2MB 21
#define VALUE_2MB (1ULL << SHIFT_2MB)
#define MASK_2MB (VALUE_2MB - 1)

#define SHIFT_4KB 12
#define VALUE_4KB (1ULL << SHIFT_4KB)
#define MASK_4KB (VALUE_4KB - 1)

#define _4KB_OFFSET(ptr) ((uintptr_t)(ptr) & MASK_4KB)
#define _2MB_OFFSET(ptr) ((uintptr_t)(ptr) & MASK_2MB)
#define FLOOR_2MB(x) ((uintptr_t)(x) & ~MASK_2MB)
#define CEIL_2MB(x) FLOOR_2MB((uintptr_t)(x) + MASK_2MB)
#define _2MB_PAGE(ptr) FLOOR_2MB(ptr)

#endif
