/* Functions with any number of arguments, which Rust cannot define. They format and call Rust. */
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

doca_error_t doca_log(uint32_t level, int source, const char *file, int line, const char *function, const char *format, ...)
{
	char usual[1024];
	char *message = usual;
	bool shown = false;
	va_list args;
	doca_error_t result = doca_emu_log_check(level, source, &shown);

	if (result != SUCCESS || format == NULL)
		return format == NULL ? INVALID_VALUE : result;
	if (!shown)
		return SUCCESS;

	va_start(args, format);
	int length = vsnprintf(usual, sizeof(usual), format, args);
	va_end(args);
	if (length < 0)
		return INVALID_VALUE;
	if ((size_t)length >= sizeof(usual)) {
		message = malloc((size_t)length + 1);
		if (message == NULL)
			return NO_MEMORY;
		va_start(args, format);
		length = vsnprintf(message, (size_t)length + 1, format, args);
		va_end(args);
	}
	if (length >= 0)
		doca_emu_log(level, file, line, function, message, (size_t)length);
	if (message != usual)
		free(message);
	return length < 0 ? INVALID_VALUE : SUCCESS;
}

/* Calls a logger of doca_argp with the arguments as it takes them. */
doca_error_t doca_emu_argp_call_logger(doca_error_t (*logger)(uint32_t level, const char *format, va_list args),
	uint32_t level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	doca_error_t result = logger(level, format, args);
	va_end(args);
	return result;
}
