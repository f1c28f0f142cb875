/* spdk/likely.h: Hints to the compiler's branch layout.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_LIKELY_H
#define SPDK_LIKELY_H

#include "spdk/stdinc.h"

#define spdk_likely(cond) __builtin_expect(!!(cond), 1)
#define spdk_unlikely(cond) __builtin_expect(!!(cond), 0)

#endif
