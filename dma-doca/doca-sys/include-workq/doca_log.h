/* doca_log.h: sources, levels, backends. A source belongs to a file. Backends write lines.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_LOG_H
#define DMA_DOCA_WORKQ_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <doca_compat.h>
#include <doca_error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_logger_backend;

enum doca_log_level {
	DOCA_LOG_LEVEL_CRIT = 20,
	DOCA_LOG_LEVEL_ERROR = 30,
	DOCA_LOG_LEVEL_WARNING = 40,
	DOCA_LOG_LEVEL_INFO = 50,
	DOCA_LOG_LEVEL_DEBUG = 60,
};

typedef void (*log_flush_callback)(char *buffer);

/* Rate limit: the maximum number of messages (quantity) per source line in an interval (bucket time, in seconds). */
DOCA_EXPERIMENTAL
uint16_t doca_log_get_bucket_time(void);

DOCA_EXPERIMENTAL
void doca_log_set_bucket_time(uint16_t bucket_time);

DOCA_EXPERIMENTAL
uint16_t doca_log_get_quantity(void);

DOCA_EXPERIMENTAL
void doca_log_set_quantity(uint16_t quantity);

DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_level_set(struct doca_logger_backend *logger, uint32_t level);

DOCA_EXPERIMENTAL
doca_error_t doca_log_global_level_set(uint32_t level);

DOCA_EXPERIMENTAL
uint32_t doca_log_global_level_get(void);

DOCA_EXPERIMENTAL
doca_error_t doca_log_source_register(const char *source_name, int *source);

DOCA_EXPERIMENTAL
doca_error_t doca_log_source_destroy(int source);

DOCA_EXPERIMENTAL
doca_error_t doca_log_rate_bucket_register(int source, int *bucket);

DOCA_EXPERIMENTAL
doca_error_t doca_log_create_file_backend(FILE *fptr, struct doca_logger_backend **backend);

DOCA_EXPERIMENTAL
doca_error_t doca_log_create_fd_backend(int fd, struct doca_logger_backend **backend);

DOCA_EXPERIMENTAL
doca_error_t doca_log_create_buffer_backend(char *buffer, size_t capacity, log_flush_callback handler,
	struct doca_logger_backend **backend);

DOCA_EXPERIMENTAL
doca_error_t doca_log_create_syslog_backend(const char *name, struct doca_logger_backend **backend);

DOCA_EXPERIMENTAL
doca_error_t doca_log(uint32_t level, int source, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

DOCA_EXPERIMENTAL
doca_error_t doca_log_developer(uint32_t level, int source, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

DOCA_EXPERIMENTAL
doca_error_t doca_log_rate_limit(uint32_t level, int source, int line, int bucket, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

#ifdef DOCA_WORKQ_1_5
/* The first backend exists from the start, and writes to standard error. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_stream_redirect(FILE *stream);
#endif

#ifdef DOCA_WORKQ_2_2
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_set_upper_level_limit(struct doca_logger_backend *logger, uint32_t upper_level_limit);

DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_set_lower_level_immutable(struct doca_logger_backend *logger);

DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_set_upper_level_immutable(struct doca_logger_backend *logger);

DOCA_EXPERIMENTAL
doca_error_t doca_log_global_set_upper_level_limit(uint32_t upper_level_limit);

DOCA_EXPERIMENTAL
doca_error_t doca_log_create_standard_backend(void);
#endif

/* Declares the file's log source, which exists before main and until after it. The semicolon is optional. */
#define DOCA_LOG_REGISTER(SOURCE) \
	static int log_source; \
	static void __attribute__((constructor(101), used)) doca_log_register_this_file(void) \
	{ \
		doca_log_source_register(#SOURCE, &log_source); \
	} \
	static void __attribute__((destructor(101), used)) doca_log_unregister_this_file(void) \
	{ \
		doca_log_source_destroy(log_source); \
	}

#define DOCA_LOG(level, ...) doca_log(DOCA_LOG_LEVEL_##level, log_source, __LINE__, __VA_ARGS__)

#define DOCA_LOG_CRIT(...) DOCA_LOG(CRIT, __VA_ARGS__)
#define DOCA_LOG_ERR(...) DOCA_LOG(ERROR, __VA_ARGS__)
#define DOCA_LOG_WARN(...) DOCA_LOG(WARNING, __VA_ARGS__)
#define DOCA_LOG_INFO(...) DOCA_LOG(INFO, __VA_ARGS__)
#define DOCA_LOG_DBG(...) DOCA_LOG(DEBUG, __VA_ARGS__)

#define DOCA_LOG_RATE_LIMIT(level, ...) \
	do { \
		static int log_bucket = -1; \
		if (log_bucket == -1) \
			doca_log_rate_bucket_register(log_source, &log_bucket); \
		doca_log_rate_limit(DOCA_LOG_LEVEL_##level, log_source, __LINE__, log_bucket, __VA_ARGS__); \
	} while (0)

#define DOCA_LOG_RATE_LIMIT_CRIT(...) DOCA_LOG_RATE_LIMIT(CRIT, __VA_ARGS__)
#define DOCA_LOG_RATE_LIMIT_ERR(...) DOCA_LOG_RATE_LIMIT(ERROR, __VA_ARGS__)
#define DOCA_LOG_RATE_LIMIT_WARN(...) DOCA_LOG_RATE_LIMIT(WARNING, __VA_ARGS__)
#define DOCA_LOG_RATE_LIMIT_INFO(...) DOCA_LOG_RATE_LIMIT(INFO, __VA_ARGS__)
#define DOCA_LOG_RATE_LIMIT_DBG(...) DOCA_LOG_RATE_LIMIT(DEBUG, __VA_ARGS__)

/* Messages that are only compiled if DOCA_LOGGING_ALLOW_DLOG is defined. */
#ifdef DOCA_LOGGING_ALLOW_DLOG
#define DOCA_DLOG(level, ...) doca_log_developer(DOCA_LOG_LEVEL_##level, log_source, __LINE__, __VA_ARGS__)
#else
#define DOCA_DLOG(level, ...) \
	do { \
	} while (0)
#endif

#define DOCA_DLOG_CRIT(...) DOCA_DLOG(CRIT, __VA_ARGS__)
#define DOCA_DLOG_ERR(...) DOCA_DLOG(ERROR, __VA_ARGS__)
#define DOCA_DLOG_WARN(...) DOCA_DLOG(WARNING, __VA_ARGS__)
#define DOCA_DLOG_INFO(...) DOCA_DLOG(INFO, __VA_ARGS__)
#define DOCA_DLOG_DBG(...) DOCA_DLOG(DEBUG, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
