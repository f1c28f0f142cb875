/* doca_log.h: which backends show which messages, and the format of lines. */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <doca_log.h>

#include "check.h"

DOCA_LOG_REGISTER(LOG::TEST)

static char seen[16][256];
static char line[64];
static int lines;
static int deep;

static void take(char *buf)
{
	CHECK(buf == line);
	CHECK(lines < 16);
	strcpy(seen[lines++], buf);
	/* A message that a handler logs reaches the other backends, and does not recurse. */
	if (deep)
		DOCA_LOG_ERR("from the handler");
}

static void *many(void *file)
{
	(void)file;
	for (int i = 0; i < 500; i++)
		DOCA_LOG_WARN("message %d of a thread", i);
	return NULL;
}

static int count(FILE *file, const char *text)
{
	char buf[4096];
	int found = 0;

	rewind(file);
	while (fgets(buf, sizeof(buf), file) != NULL)
		found += strstr(buf, text) != NULL;
	return found;
}

int main(void)
{
	struct doca_log_backend *buf, *file, *fd, *sdk, *syslog;
	FILE *stream = tmpfile(), *other = tmpfile();
	int source = -1;

	CHECK(stream != NULL && other != NULL);
	CHECK(doca_log_level_get_global_lower_limit() == DOCA_LOG_LEVEL_INFO);
	CHECK(doca_log_level_get_global_upper_limit() == DOCA_LOG_LEVEL_CRIT);
	CHECK(doca_log_level_get_global_sdk_limit() == DOCA_LOG_LEVEL_INFO);

	/* Invalid arguments. */
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_create_with_file(NULL, &file));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_create_with_file(stream, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_create_with_fd(-1, &fd));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_create_with_buf(NULL, 1, take, &buf));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_create_with_buf(line, 0, take, &buf));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_create_with_buf(line, sizeof(line), NULL, &buf));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_create_with_syslog(NULL, &syslog));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_level_set_global_lower_limit(55));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_level_set_global_upper_limit(0));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_level_set_global_sdk_limit(80));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_register_source(NULL, &source));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_unregister_source(12345));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log(DOCA_LOG_LEVEL_INFO, 12345, __FILE__, __LINE__, __func__, "lost"));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log(45, log_source, __FILE__, __LINE__, __func__, "lost"));

	/* A backend with a buffer gets one line at a time, cut to the length of the buffer. */
	OK(doca_log_backend_create_with_buf(line, sizeof(line), take, &buf));
	DOCA_LOG_INFO("x");
	CHECK(lines == 1);
	CHECK(seen[0][0] == '[' && strstr(seen[0], "][DOCA][INF][log.c:") != NULL);
	DOCA_LOG_ERR("%s", "a message that is much too long for a buffer of only sixty-four characters");
	CHECK(lines == 2 && strlen(seen[1]) == sizeof(line) - 1);
	DOCA_LOG_DBG("too talkative");
	CHECK(lines == 2);
	deep = 1;
	OK(doca_log_backend_create_with_file(stream, &file));
	DOCA_LOG_WARN("%s", "outer");
	deep = 0;
	CHECK(lines == 3);
	CHECK(count(stream, "[main] outer\n") == 1);
	CHECK(count(stream, "[take] from the handler\n") == 1);

	/* Limits: the most severe and the most verbose level. */
	OK(doca_log_backend_set_level_lower_limit(buf, DOCA_LOG_LEVEL_ERROR));
	DOCA_LOG_WARN("not in the buffer");
	CHECK(lines == 3 && count(stream, "not in the buffer") == 1);
	OK(doca_log_backend_set_level_lower_limit_strict(buf));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_log_backend_set_level_lower_limit(buf, DOCA_LOG_LEVEL_INFO));
	OK(doca_log_level_set_global_lower_limit(DOCA_LOG_LEVEL_DEBUG));
	CHECK(doca_log_level_get_global_lower_limit() == DOCA_LOG_LEVEL_DEBUG);
	DOCA_LOG_DBG("only in the file");
	CHECK(lines == 3 && count(stream, "only in the file") == 1);
	OK(doca_log_backend_set_level_upper_limit(buf, DOCA_LOG_LEVEL_ERROR));
	OK(doca_log_backend_set_level_upper_limit_strict(buf));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_log_backend_set_level_upper_limit(buf, DOCA_LOG_LEVEL_CRIT));
	DOCA_LOG_CRIT("too grave for the buffer");
	CHECK(lines == 3 && count(stream, "too grave") == 1);
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_set_level_lower_limit(buf, 7));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_set_level_lower_limit(NULL, DOCA_LOG_LEVEL_INFO));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_set_sdk_level(buf, DOCA_LOG_LEVEL_INFO));

	/* A long message is not cut in a file. */
	char big[5000];

	memset(big, 'b', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	long before = (fseek(stream, 0, SEEK_END), ftell(stream));
	DOCA_LOG_INFO("%s", big);
	fseek(stream, 0, SEEK_END);
	CHECK(ftell(stream) - before > (long)sizeof(big));

	/* The SDK's messages go to its own backends only. */
	OK(doca_log_backend_create_with_fd_sdk(fileno(other), &sdk));
	CHECK(count(other, "DOCA version ") == 1 && count(stream, "DOCA version ") == 0);
	OK(doca_log_backend_set_sdk_level(sdk, DOCA_LOG_LEVEL_WARNING));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log_backend_set_level_lower_limit(sdk, DOCA_LOG_LEVEL_INFO));
	DOCA_LOG_ERR("of the program");
	CHECK(count(other, "of the program") == 0);

	/* Several threads log. Every line is complete. */
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, many, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(count(stream, "] message ") == 2000);
	CHECK(count(stream, " of a thread\n") == 2000);

	OK(doca_log_register_source("ANOTHER", &source));
	CHECK(source != log_source);
	OK(doca_log(DOCA_LOG_LEVEL_INFO, source, "here.c", 7, "there", "%d", 42));
	CHECK(count(stream, "[DOCA][INF][here.c:7][there] 42\n") == 1);
	OK(doca_log_unregister_source(source));
	IS(DOCA_ERROR_INVALID_VALUE, doca_log(DOCA_LOG_LEVEL_INFO, source, "here.c", 7, "there", "gone"));
	fclose(other);
	return 0;
}
