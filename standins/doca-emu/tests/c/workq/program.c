/* DOCA 1.5 and 2.2: command lines, and the log: sources, levels, backends, messages of limited rate. */
#define DOCA_LOGGING_ALLOW_DLOG
#include <stdbool.h>
#include <unistd.h>

#include <doca_argp.h>
#include <doca_log.h>

#include "check.h"

DOCA_LOG_REGISTER(PROGRAM::Test)

static char line[256], small[8], before[256];
static int lines, words, flags;

static void on_line(char *buffer)
{
	CHECK(buffer == line);
	memcpy(before, line, sizeof(before));
	lines++;
}

static void on_small(char *buffer)
{
	CHECK(buffer == small && strlen(buffer) < sizeof(small));
}

static doca_error_t on_word(void *value, void *config)
{
	CHECK(config == &words && strcmp((const char *)value, "some text") == 0);
	words++;
	return DOCA_SUCCESS;
}

static doca_error_t on_number(void *value, void *config)
{
	(void)config;
	return *(int *)value == 7 ? DOCA_SUCCESS : DOCA_ERROR_INVALID_VALUE;
}

static doca_error_t on_flag(void *value, void *config)
{
	(void)config;
	CHECK(*(bool *)value);
	flags++;
	return DOCA_SUCCESS;
}

static doca_error_t on_valid(void *config)
{
	CHECK(config == &words);
	return words == 1 ? DOCA_SUCCESS : DOCA_ERROR_INVALID_VALUE;
}

static void param(const char *name, const char *long_name, enum doca_argp_type type, callback_func callback)
{
	struct doca_argp_param *it;

	OK(doca_argp_param_create(&it));
	doca_argp_param_set_short_name(it, name);
	doca_argp_param_set_long_name(it, long_name);
	doca_argp_param_set_description(it, "a flag");
	doca_argp_param_set_arguments(it, "<value>");
	doca_argp_param_set_callback(it, callback);
	doca_argp_param_set_type(it, type);
	OK(doca_argp_register_param(it));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_param_destroy(it));
}

static void arguments(void)
{
	char *good[] = {(char *)"program", (char *)"-w", (char *)"some text", (char *)"--number", (char *)"7", (char *)"-f",
		(char *)"-l", (char *)"60", NULL};
	char *bad[] = {(char *)"program", (char *)"--number", (char *)"8", NULL};
	char *level[] = {(char *)"program", (char *)"-l", (char *)"70", NULL};
	struct doca_argp_param *unused;
	const char *address = NULL;
	int number = 0;

	IS(DOCA_ERROR_BAD_STATE, doca_argp_destroy());
	OK(doca_argp_init("program", &words));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_init("program", &words));
	doca_argp_set_grpc_program();
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_argp_get_grpc_addr(&address));
	param("w", "word", DOCA_ARGP_TYPE_STRING, on_word);
	param("n", "number", DOCA_ARGP_TYPE_INT, on_number);
	param("f", "flag", DOCA_ARGP_TYPE_BOOLEAN, on_flag);
	OK(doca_argp_param_create(&unused));
	OK(doca_argp_param_destroy(unused));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_register_version_callback(NULL));
	OK(doca_argp_register_validation_callback(on_valid));
	OK(doca_argp_start(8, good));
	CHECK(words == 1 && flags == 1);
	OK(doca_argp_get_log_level(&number));
	CHECK(number == DOCA_LOG_LEVEL_DEBUG);
	OK(doca_argp_destroy());

	/* The call returns the callback's code, and prints mistakes on standard error. */
	OK(doca_argp_init("program", &words));
	param("n", "number", DOCA_ARGP_TYPE_INT, on_number);
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_start(3, bad));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_start(3, level));
	OK(doca_argp_destroy());
}

int main(void)
{
	struct doca_logger_backend *backend, *other;
	int source = -1, bucket = -1, ends[2];
	FILE *file;
	char text[512];
	ssize_t len;

#if DOCA_VER_MAJOR < 2
	/* A backend exists from the start. */
	FILE *first = tmpfile();

	CHECK(first != NULL);
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_stream_redirect(NULL));
	OK(doca_log_stream_redirect(first));
	DOCA_LOG_WARN("to the %s", "first");
	CHECK(ftell(first) > 20);
#else
	/* No backend shows this message. */
	DOCA_LOG_CRIT("to none");
#endif
	CHECK(doca_log_global_level_get() == DOCA_LOG_LEVEL_INFO);
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_create_buffer_backend(line, 0, on_line, &backend));
	OK(doca_log_create_buffer_backend(line, sizeof(line), on_line, &backend));
	OK(doca_log_create_buffer_backend(small, sizeof(small), on_small, &other));
	DOCA_LOG_INFO("number %d", 5);
	CHECK(lines == 1 && strstr(before, "PROGRAM::Test:") != NULL && strstr(before, "number 5\n") != NULL);
	CHECK(strstr(before, "[INF]") != NULL && strlen(small) == sizeof(small) - 1);
	DOCA_LOG_DBG("too much");
	CHECK(lines == 1);
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_level_set(backend, 70));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_level_set(NULL, 60));
	OK(doca_log_backend_level_set(backend, DOCA_LOG_LEVEL_DEBUG));
	DOCA_LOG_DBG("%0*d", 2000, 3);
	CHECK(lines == 2 && strlen(before) == sizeof(line) - 1);
	DOCA_DLOG_DBG("by a developer");
	CHECK(lines == 3);
	OK(doca_log_global_level_set(DOCA_LOG_LEVEL_ERROR));
	CHECK(doca_log_global_level_get() == DOCA_LOG_LEVEL_ERROR);
	DOCA_LOG_WARN("too much");
	CHECK(lines == 3);

	/* A bucket limits the messages in an interval. After the interval, further messages are shown. */
	doca_log_set_bucket_time(UINT16_MAX);
	doca_log_set_quantity(4);
	CHECK(doca_log_get_bucket_time() == UINT16_MAX && doca_log_get_quantity() == 4);
	for (int i = 0; i < 10; i++)
		DOCA_LOG_RATE_LIMIT_ERR("number %d", i);
	CHECK(lines == 7 && strstr(before, "number 3\n") != NULL);
	doca_log_set_bucket_time(0);
	OK(doca_log_source_register("another", &source));
	OK(doca_log_rate_bucket_register(source, &bucket));
	for (int i = 0; i < 6; i++)
		OK(doca_log_rate_limit(DOCA_LOG_LEVEL_CRIT, source, 1, bucket, "number %d", i));
	CHECK(lines == 13 && strstr(before, "[another:1] number 5\n") != NULL);
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_rate_limit(DOCA_LOG_LEVEL_CRIT, source, 1, bucket + 1, "none"));
	OK(doca_log_source_destroy(source));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_source_destroy(source));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log(DOCA_LOG_LEVEL_CRIT, source, 1, "gone"));

	/* Descriptors and streams. */
	CHECK(pipe(ends) == 0);
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_create_fd_backend(-1, &other));
	OK(doca_log_create_fd_backend(ends[1], &other));
	file = tmpfile();
	CHECK(file != NULL);
	OK(doca_log_create_file_backend(file, &other));
	DOCA_LOG_ERR("to all");
	len = read(ends[0], text, sizeof(text) - 1);
	CHECK(len > 0 && ftell(file) == len);
	OK(doca_log_create_syslog_backend("program", &other));
#if DOCA_VER_MAJOR >= 2
	OK(doca_log_backend_set_upper_level_limit(backend, DOCA_LOG_LEVEL_ERROR));
	OK(doca_log_backend_set_lower_level_immutable(backend));
	OK(doca_log_backend_set_upper_level_immutable(backend));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_log_backend_level_set(backend, DOCA_LOG_LEVEL_DEBUG));
	lines = 0;
	DOCA_LOG_CRIT("beyond the limit");
	CHECK(lines == 0);
	OK(doca_log_global_set_upper_level_limit(DOCA_LOG_LEVEL_CRIT));
	OK(doca_log_create_standard_backend());
#endif
	arguments();
	return 0;
}
