/* Variadic functions, which stable Rust cannot define. They format the message and call Rust. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned int doca_error_t;

doca_error_t doca_emu_log_check(uint32_t level, int source, bool *shown);
void doca_emu_log(uint32_t level, const char *file, int line, const char *function, const char *message, size_t length);

enum { SUCCESS = 0, INVALID_VALUE = 6, NO_MEMORY = 7 };

/* Formats and logs a message that a backend will show. */
static doca_error_t publish(uint32_t level, const char *file, int line, const char *function, const char *format, va_list args)
{
	char usual[1024];
	char *message = usual;
	va_list again;

	va_copy(again, args);
	int length = vsnprintf(usual, sizeof(usual), format, args);
	if (length >= 0 && (size_t)length >= sizeof(usual)) {
		message = malloc((size_t)length + 1);
		if (message != NULL)
			length = vsnprintf(message, (size_t)length + 1, format, again);
	}
	va_end(again);
	if (message == NULL)
		return NO_MEMORY;
	if (length >= 0)
		doca_emu_log(level, file, line, function, message, (size_t)length);
	if (message != usual)
		free(message);
	return length < 0 ? INVALID_VALUE : SUCCESS;
}

#define LOG_IF(shown, file, function) \
	do { \
		va_list args; \
		if (result != SUCCESS || format == NULL) \
			return format == NULL ? INVALID_VALUE : result; \
		if (!(shown)) \
			return SUCCESS; \
		va_start(args, format); \
		result = publish(level, file, line, function, format, args); \
		va_end(args); \
		return result; \
	} while (0)

#ifndef WORKQ
doca_error_t doca_log(uint32_t level, int source, const char *file, int line, const char *function, const char *format, ...)
{
	bool shown = false;
	doca_error_t result = doca_emu_log_check(level, source, &shown);

	LOG_IF(shown, file, function);
}
#else
/* Log lines of DOCA 1.5 and 2.2 name the source instead of the file and function. */
const char *doca_emu_log_source(int source);
doca_error_t doca_emu_log_bucket(int source, int bucket, bool *shown);

doca_error_t doca_log(uint32_t level, int source, int line, const char *format, ...)
{
	bool shown = false;
	doca_error_t result = doca_emu_log_check(level, source, &shown);

	LOG_IF(shown, doca_emu_log_source(source), "");
}

doca_error_t doca_log_developer(uint32_t level, int source, int line, const char *format, ...)
{
	bool shown = false;
	doca_error_t result = doca_emu_log_check(level, source, &shown);

	LOG_IF(shown, doca_emu_log_source(source), "");
}

doca_error_t doca_log_rate_limit(uint32_t level, int source, int line, int bucket, const char *format, ...)
{
	bool shown = false, left = false;
	doca_error_t result = doca_emu_log_check(level, source, &shown);

	if (result == SUCCESS && shown)
		result = doca_emu_log_bucket(source, bucket, &left);
	LOG_IF(shown && left, doca_emu_log_source(source), "");
}
#endif

/* Calls a logger of doca_argp, which takes a va_list. */
doca_error_t doca_emu_argp_call_logger(doca_error_t (*logger)(uint32_t level, const char *format, va_list args),
	uint32_t level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	doca_error_t result = logger(level, format, args);
	va_end(args);
	return result;
}
