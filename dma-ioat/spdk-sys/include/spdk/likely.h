/* spdk/likely.h: Hints to the compiler's branch layout.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). What
 * each call does stands there; how the stand-in differs, in spdk-emu. */
#ifndef SPDK_LIKELY_H
#define SPDK_LIKELY_H

#include "spdk/stdinc.h"

#define spdk_likely(cond) __builtin_expect(!!(cond), 1)
#define spdk_unlikely(cond) __builtin_expect(!!(cond), 0)

#endif
