/* spdk/string.h: Strings.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_STRING_H
#define SPDK_STRING_H

#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPDK_STRINGIFY_(x) #x
#define SPDK_STRINGIFY(x) SPDK_STRINGIFY_(x)

/* Free the results of these calls with free(). */
char *spdk_sprintf_alloc(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
char *spdk_vsprintf_alloc(const char *format, va_list args);
char *spdk_sprintf_append_realloc(char *buffer, const char *format, ...)
	__attribute__((__format__(__printf__, 2, 3)));
char *spdk_vsprintf_append_realloc(char *buffer, const char *format, va_list args);

void spdk_strerror_r(int errnum, char *buf, size_t buflen);
const char *spdk_strerror(int errnum);

/* Returns a negative errno if the string has no number or a negative one. */
long int spdk_strtol(const char *nptr, int base);
long long int spdk_strtoll(const char *nptr, int base);
int spdk_parse_capacity(const char *cap_str, uint64_t *cap, bool *has_prefix);

bool spdk_mem_all_zero(const void *data, size_t size);

#ifdef __cplusplus
}
#endif

#endif
