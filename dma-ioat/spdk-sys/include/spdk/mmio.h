/* spdk/mmio.h: Reads and writes of a device's registers.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_MMIO_H
#define SPDK_MMIO_H

#include "spdk/barrier.h"
#include "spdk/stdinc.h"

#if defined(__x86_64__)
#define SPDK_MMIO_64BIT 1
#else
#define SPDK_MMIO_64BIT 0
#endif

#define SPDK_MMIO_ACCESS_(bytes, type) \
	static inline type spdk_mmio_read_##bytes(const volatile type *addr) \
	{ \
		spdk_compiler_barrier(); \
		return *addr; \
	} \
	static inline void spdk_mmio_write_##bytes(volatile type *addr, type val) \
	{ \
		spdk_compiler_barrier(); \
		*addr = val; \
	}

SPDK_MMIO_ACCESS_(1, uint8_t)
SPDK_MMIO_ACCESS_(2, uint16_t)
SPDK_MMIO_ACCESS_(4, uint32_t)

#if SPDK_MMIO_64BIT
SPDK_MMIO_ACCESS_(8, uint64_t)
#else
/* Two 32-bit accesses, the low half first, because devices expect this order from processors without 64-bit accesses. */
static inline uint64_t spdk_mmio_read_8(const volatile uint64_t *addr)
{
	const volatile uint32_t *half = (const volatile uint32_t *)addr;
	uint64_t low = spdk_mmio_read_4(half);

	return low | (uint64_t)spdk_mmio_read_4(half + 1) << 32;
}

static inline void spdk_mmio_write_8(volatile uint64_t *addr, uint64_t val)
{
	volatile uint32_t *half = (volatile uint32_t *)addr;

	spdk_mmio_write_4(half, (uint32_t)val);
	spdk_mmio_write_4(half + 1, (uint32_t)(val >> 32));
}
#endif

#undef SPDK_MMIO_ACCESS_

#endif
