/* spdk/cpuset.h: Sets of processors.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_CPUSET_H
#define SPDK_CPUSET_H

#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPDK_CPUSET_SIZE 1024

struct spdk_cpuset {
	char str[SPDK_CPUSET_SIZE / 4 + 1]; /* room for spdk_cpuset_fmt */
	uint8_t cpus[SPDK_CPUSET_SIZE / 8];
};

struct spdk_cpuset *spdk_cpuset_alloc(void);
void spdk_cpuset_free(struct spdk_cpuset *set);

bool spdk_cpuset_equal(const struct spdk_cpuset *set1, const struct spdk_cpuset *set2);
void spdk_cpuset_copy(struct spdk_cpuset *dst, const struct spdk_cpuset *src);
void spdk_cpuset_and(struct spdk_cpuset *dst, const struct spdk_cpuset *src);
void spdk_cpuset_or(struct spdk_cpuset *dst, const struct spdk_cpuset *src);
void spdk_cpuset_xor(struct spdk_cpuset *dst, const struct spdk_cpuset *src);
void spdk_cpuset_negate(struct spdk_cpuset *set);
void spdk_cpuset_zero(struct spdk_cpuset *set);
void spdk_cpuset_set_cpu(struct spdk_cpuset *set, uint32_t cpu, bool state);
bool spdk_cpuset_get_cpu(const struct spdk_cpuset *set, uint32_t cpu);
void spdk_cpuset_for_each_cpu(const struct spdk_cpuset *set, void (*fn)(void *ctx, uint32_t cpu), void *ctx);
uint32_t spdk_cpuset_count(const struct spdk_cpuset *set);

/* A set as text: a mask such as "f0" or "0xf0", or a list such as "[0,2-4]". */
const char *spdk_cpuset_fmt(struct spdk_cpuset *set);
int spdk_cpuset_parse(struct spdk_cpuset *set, const char *mask);

#ifdef __cplusplus
}
#endif

#endif
