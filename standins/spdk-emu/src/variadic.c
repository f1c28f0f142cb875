/* Variadic functions, which stable Rust cannot define. They format the text and call Rust. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool spdk_emu_log_shown(int level);
void spdk_emu_log(int level, const char *file, int line, const char *func, const char *message);
void spdk_emu_flog(FILE *to, const char *file, int line, const char *func, const char *message);

char *spdk_vsprintf_append_realloc(char *buffer, const char *format, va_list args);
char *spdk_vsprintf_alloc(const char *format, va_list args);
char *spdk_sprintf_append_realloc(char *buffer, const char *format, ...);
char *spdk_sprintf_alloc(const char *format, ...);

typedef void log_cb(int level, const char *file, const int line, const char *func, const char *format, va_list args);

/* struct spdk_log_opts */
struct opts {
	size_t size;
	log_cb *log;
	void (*open)(void *ctx);
	void (*close)(void *ctx);
	void *user_ctx;
};

static struct opts current;

void spdk_log_open_ext(struct opts *opts)
{
	struct opts given = { 0 };

	/* Without options, messages go to the system log, which need not be opened. */
	if (opts != NULL)
		memcpy(&given, opts, opts->size < sizeof(given) ? opts->size : sizeof(given));
	current = given;
	if (current.open != NULL)
		current.open(current.user_ctx);
}

void spdk_log_open(log_cb *log)
{
	struct opts given = { .size = sizeof(given), .log = log };

	spdk_log_open_ext(&given);
}

void spdk_log_close(void)
{
	if (current.close != NULL)
		current.close(current.user_ctx);
	memset(&current, 0, sizeof(current));
}

void spdk_vlog(int level, const char *file, const int line, const char *func, const char *format, va_list args)
{
	char *message;

	if (current.log != NULL) {
		current.log(level, file, line, func, format, args);
		return;
	}
	if (!spdk_emu_log_shown(level))
		return;
	message = spdk_vsprintf_alloc(format, args);
	if (message != NULL)
		spdk_emu_log(level, file, line, func, message);
	free(message);
}

void spdk_log(int level, const char *file, const int line, const char *func, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	spdk_vlog(level, file, line, func, format, args);
	va_end(args);
}

void spdk_vflog(FILE *to, const char *file, const int line, const char *func, const char *format, va_list args)
{
	char *message = spdk_vsprintf_alloc(format, args);

	if (message != NULL)
		spdk_emu_flog(to, file, line, func, message);
	free(message);
}

void spdk_flog(FILE *to, const char *file, const int line, const char *func, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	spdk_vflog(to, file, line, func, format, args);
	va_end(args);
}

char *spdk_vsprintf_append_realloc(char *buffer, const char *format, va_list args)
{
	size_t before = buffer != NULL ? strlen(buffer) : 0;
	va_list again;
	char *longer;
	int more;

	va_copy(again, args);
	more = vsnprintf(NULL, 0, format, again);
	va_end(again);
	if (more < 0)
		return NULL;
	longer = realloc(buffer, before + (size_t)more + 1);
	if (longer != NULL)
		vsnprintf(longer + before, (size_t)more + 1, format, args);
	return longer;
}

char *spdk_vsprintf_alloc(const char *format, va_list args)
{
	return spdk_vsprintf_append_realloc(NULL, format, args);
}

char *spdk_sprintf_append_realloc(char *buffer, const char *format, ...)
{
	va_list args;
	char *longer;

	va_start(args, format);
	longer = spdk_vsprintf_append_realloc(buffer, format, args);
	va_end(args);
	return longer;
}

char *spdk_sprintf_alloc(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = spdk_vsprintf_append_realloc(NULL, format, args);
	va_end(args);
	return text;
}
