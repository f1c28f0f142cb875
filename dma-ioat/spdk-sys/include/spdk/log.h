/* spdk/log.h: Messages.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_LOG_H
#define SPDK_LOG_H

#include "spdk/assert.h"
#include "spdk/queue.h"
#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum spdk_log_level {
	SPDK_LOG_DISABLED = -1,
	SPDK_LOG_ERROR,
	SPDK_LOG_WARN,
	SPDK_LOG_NOTICE,
	SPDK_LOG_INFO,
	SPDK_LOG_DEBUG,
};

typedef void spdk_log_cb(int level, const char *file, const int line, const char *func, const char *format,
	va_list args);
typedef void spdk_log_open_cb(void *ctx);
typedef void spdk_log_close_cb(void *ctx);

struct spdk_log_opts {
	size_t size; /* size of the caller's struct */
	spdk_log_cb *log;
	spdk_log_open_cb *open;
	spdk_log_close_cb *close;
	void *user_ctx;
};
SPDK_STATIC_ASSERT(sizeof(struct spdk_log_opts) == 40, "size of spdk_log_opts");

/* With NULL, messages go to syslog. */
void spdk_log_open(spdk_log_cb *log);
void spdk_log_open_ext(struct spdk_log_opts *opts);
void spdk_log_close(void);
void spdk_log_enable_timestamps(bool value);

/* The most verbose levels that go to syslog and to stderr. */
void spdk_log_set_level(enum spdk_log_level level);
enum spdk_log_level spdk_log_get_level(void);
void spdk_log_set_print_level(enum spdk_log_level level);
enum spdk_log_level spdk_log_get_print_level(void);
int spdk_log_to_syslog_level(enum spdk_log_level level);

void spdk_log(enum spdk_log_level level, const char *file, const int line, const char *func, const char *format, ...)
	__attribute__((__format__(__printf__, 5, 6)));
void spdk_vlog(enum spdk_log_level level, const char *file, const int line, const char *func, const char *format,
	va_list ap);
void spdk_flog(FILE *fp, const char *file, const int line, const char *func, const char *format, ...)
	__attribute__((__format__(__printf__, 5, 6)));
void spdk_vflog(FILE *fp, const char *file, const int line, const char *func, const char *format, va_list ap);
void spdk_log_dump(FILE *fp, const char *label, const void *buf, size_t len);

#define SPDK_LOG_AT_(level, ...) spdk_log(level, __FILE__, __LINE__, __func__, __VA_ARGS__)

#define SPDK_ERRLOG(...) SPDK_LOG_AT_(SPDK_LOG_ERROR, __VA_ARGS__)
#define SPDK_WARNLOG(...) SPDK_LOG_AT_(SPDK_LOG_WARN, __VA_ARGS__)
#define SPDK_NOTICELOG(...) SPDK_LOG_AT_(SPDK_LOG_NOTICE, __VA_ARGS__)
#define SPDK_PRINTF(...) spdk_log(SPDK_LOG_NOTICE, NULL, -1, NULL, __VA_ARGS__)

/* Flags enable the verbose levels for single components. */
struct spdk_log_flag {
	TAILQ_ENTRY(spdk_log_flag) tailq;
	const char *name;
	bool enabled;
};

void spdk_log_register_flag(const char *name, struct spdk_log_flag *flag);
struct spdk_log_flag *spdk_log_get_first_flag(void);
struct spdk_log_flag *spdk_log_get_next_flag(struct spdk_log_flag *flag);
bool spdk_log_get_flag(const char *flag);
int spdk_log_set_flag(const char *flag);
int spdk_log_clear_flag(const char *flag);
void spdk_log_usage(FILE *f, const char *log_arg);

#define SPDK_LOG_REGISTER_COMPONENT(flag) \
	struct spdk_log_flag SPDK_LOG_##flag = { .tailq = { NULL, NULL }, .name = #flag, .enabled = false }; \
	__attribute__((constructor)) static void spdk_log_register_##flag##_(void) \
	{ \
		spdk_log_register_flag(#flag, &SPDK_LOG_##flag); \
	}

#define SPDK_LOG_IF_FLAG_(flag, what) \
	do { \
		extern struct spdk_log_flag SPDK_LOG_##flag; \
		if (SPDK_LOG_##flag.enabled) { \
			what; \
		} \
	} while (0)

#define SPDK_INFOLOG(flag, ...) SPDK_LOG_IF_FLAG_(flag, SPDK_LOG_AT_(SPDK_LOG_INFO, __VA_ARGS__))

#ifdef DEBUG
#define SPDK_DEBUGLOG_FLAG_ENABLED(name) spdk_log_get_flag(name)
#define SPDK_DEBUGLOG(flag, ...) SPDK_LOG_IF_FLAG_(flag, SPDK_LOG_AT_(SPDK_LOG_DEBUG, __VA_ARGS__))
#define SPDK_LOGDUMP(flag, label, buf, len) SPDK_LOG_IF_FLAG_(flag, spdk_log_dump(stderr, (label), (buf), (len)))
#else
#define SPDK_DEBUGLOG_FLAG_ENABLED(name) false
#define SPDK_DEBUGLOG(...) do { } while (0)
#define SPDK_LOGDUMP(...) do { } while (0)
#endif

/* Logs at most once a second per source line. */
#define SPDK_ERRLOG_RATELIMIT(...) \
	do { \
		static uint64_t spdk_last_, spdk_more_; \
		uint64_t spdk_now_ = spdk_get_ticks(); \
		if (spdk_last_ != 0 && spdk_now_ - spdk_last_ < spdk_get_ticks_hz()) { \
			spdk_more_++; \
			break; \
		} \
		spdk_last_ = spdk_now_; \
		SPDK_ERRLOG(__VA_ARGS__); \
		if (spdk_more_ != 0) { \
			SPDK_ERRLOG("(and %" PRIu64 " times more since the last of these)\n", spdk_more_); \
			spdk_more_ = 0; \
		} \
	} while (0)

#ifdef __cplusplus
}
#endif

#endif
