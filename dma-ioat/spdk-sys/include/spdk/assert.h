/* spdk/assert.h: Checks at compile time.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_ASSERT_H
#define SPDK_ASSERT_H

#include "spdk/stdinc.h"

#if defined(__cplusplus) || defined(static_assert)
#define SPDK_STATIC_ASSERT(cond, msg) static_assert(cond, msg)
#else
#define SPDK_STATIC_ASSERT(cond, msg) _Static_assert(cond, msg)
#endif

#endif
