/* spdk/util.h: Arithmetic.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_UTIL_H
#define SPDK_UTIL_H

#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPDK_CACHE_LINE_SIZE 64

#define spdk_min(a, b) (((a) < (b)) ? (a) : (b))
#define spdk_max(a, b) (((a) > (b)) ? (a) : (b))

#define SPDK_COUNTOF(arr) (sizeof(arr) / sizeof((arr)[0]))
#define SPDK_CONTAINEROF(ptr, type, member) ((type *)((uintptr_t)(ptr) - offsetof(type, member)))
#define SPDK_SIZEOF(ptr, member) (offsetof(__typeof__(*(ptr)), member) + sizeof((ptr)->member))
#define SPDK_SIZEOF_MEMBER(type, member) (sizeof(((type *)0)->member))
#define SPDK_COUNTOF_MEMBER(type, member) SPDK_COUNTOF(((type *)0)->member)

#define SPDK_SEC_TO_MSEC 1000ULL
#define SPDK_SEC_TO_USEC 1000000ULL
#define SPDK_SEC_TO_NSEC 1000000000ULL
#define SPDK_MSEC_TO_USEC 1000ULL

#define SPDK_CEIL_DIV(x, y) (((x) + (y) - 1) / (y))
#define SPDK_BIT(n) (UINT64_C(1) << (n))

/* Round a number to a multiple of a power of two. */
#define SPDK_ALIGN_FLOOR(val, align) ((__typeof__(val))((val) & ~((__typeof__(val))(align) - 1)))
#define SPDK_ALIGN_CEIL(val, align) SPDK_ALIGN_FLOOR((val) + ((__typeof__(val))(align) - 1), align)

/* The floor of the binary logarithm; 0 for 0. */
uint32_t spdk_u32log2(uint32_t x);
uint64_t spdk_u64log2(uint64_t x);

static inline bool spdk_u32_is_pow2(uint32_t x)
{
	return __builtin_popcount(x) == 1;
}

static inline bool spdk_u64_is_pow2(uint64_t x)
{
	return __builtin_popcountll(x) == 1;
}

static inline uint32_t spdk_align32pow2(uint32_t x)
{
	return UINT32_C(1) << (spdk_u32log2(x - 1) + 1);
}

static inline uint64_t spdk_align64pow2(uint64_t x)
{
	return UINT64_C(1) << (spdk_u64log2(x - 1) + 1);
}

static inline uint64_t spdk_divide_round_up(uint64_t num, uint64_t divisor)
{
	return SPDK_CEIL_DIV(num, divisor);
}

static inline uint64_t spdk_round_up(uint64_t num, uint64_t divisor)
{
	return divisor * SPDK_CEIL_DIV(num, divisor);
}

/* George Marsaglia's 64-bit xorshift (Journal of Statistical Software 8/14, 2003), with the shifts 13, 7, 17. */
static inline uint64_t spdk_rand_xorshift64(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline uint64_t spdk_rand_xorshift64_seed(void)
{
	uint64_t high = (uint64_t)rand();
	uint64_t seed = high << 32 | (uint64_t)rand();

	return seed != 0 ? seed : 1;
}

/* A memset that compilers do not remove. */
static inline void spdk_memset_s(void *data, size_t data_size, int ch, size_t count)
{
	if (data == NULL)
		return;
	memset(data, ch, spdk_min(count, data_size));
	__asm__ volatile("" : : "r"(data) : "memory");
}

#ifdef __cplusplus
}
#endif

#endif
