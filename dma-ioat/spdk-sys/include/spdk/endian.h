/* spdk/endian.h: Numbers in a given byte order, at any address.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_ENDIAN_H
#define SPDK_ENDIAN_H

#include <endian.h>

#include "spdk/stdinc.h"

#define SPDK_ENDIAN_ACCESS_(order, bits) \
	static inline uint##bits##_t from_##order##bits(const void *ptr) \
	{ \
		uint##bits##_t raw; \
		memcpy(&raw, ptr, sizeof(raw)); \
		return order##bits##toh(raw); \
	} \
	static inline void to_##order##bits(void *out, uint##bits##_t in) \
	{ \
		uint##bits##_t raw = hto##order##bits(in); \
		memcpy(out, &raw, sizeof(raw)); \
	}

SPDK_ENDIAN_ACCESS_(be, 16)
SPDK_ENDIAN_ACCESS_(be, 32)
SPDK_ENDIAN_ACCESS_(be, 64)
SPDK_ENDIAN_ACCESS_(le, 16)
SPDK_ENDIAN_ACCESS_(le, 32)
SPDK_ENDIAN_ACCESS_(le, 64)

#undef SPDK_ENDIAN_ACCESS_

#endif
