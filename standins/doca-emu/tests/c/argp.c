/* doca_argp.h: command lines, JSON files, commands, and mistakes in them. */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doca_argp.h>

#include "check.h"

DOCA_LOG_REGISTER(ARGP::TEST)

struct config {
	char text[64];
	int number;
	bool flag;
	int times;
	int validated;
	char command[32];
	doca_error_t refuse;
};

static struct config config;
static char said[512];

static doca_error_t on_text(void *param, void *cfg)
{
	CHECK(cfg == &config);
	CHECK(strlen((char *)param) < sizeof(config.text));
	strcpy(config.text, (char *)param);
	return config.refuse;
}

static doca_error_t on_number(void *param, void *cfg)
{
	CHECK(cfg == &config);
	config.number = *(int *)param;
	config.times++;
	return DOCA_SUCCESS;
}

static doca_error_t on_flag(void *param, void *cfg)
{
	CHECK(cfg == &config);
	config.flag = *(bool *)param;
	return DOCA_SUCCESS;
}

static doca_error_t on_validate(void *cfg)
{
	CHECK(cfg == &config);
	config.validated++;
	return config.number == 13 ? DOCA_ERROR_BAD_CONFIG : DOCA_SUCCESS;
}

static doca_error_t on_command(void *cfg)
{
	CHECK(cfg == &config);
	strcpy(config.command, "chosen");
	return DOCA_SUCCESS;
}

static doca_error_t on_say(enum doca_log_level level, const char *format, va_list args)
{
	CHECK(level == DOCA_LOG_LEVEL_ERROR);
	vsnprintf(said, sizeof(said), format, args);
	return DOCA_SUCCESS;
}

static struct doca_argp_param *param(const char *shorter, const char *longer, doca_argp_param_cb_t callback,
	enum doca_argp_type type)
{
	struct doca_argp_param *made = NULL;

	OK(doca_argp_param_create(&made));
	if (shorter != NULL)
		doca_argp_param_set_short_name(made, shorter);
	if (longer != NULL)
		doca_argp_param_set_long_name(made, longer);
	doca_argp_param_set_description(made, "what it is");
	doca_argp_param_set_callback(made, callback);
	doca_argp_param_set_type(made, type);
	return made;
}

enum { MANDATORY = 1, MULTIPLE = 2, SINGULAR = 4, CLI_ONLY = 8 };

/* Makes a parser with three flags. `how` selects options of the flags "text" and "number". */
static void begin(int how)
{
	struct doca_argp_param *text;

	memset(&config, 0, sizeof(config));
	said[0] = '\0';
	OK(doca_argp_init("tester", &config));
	text = param("t", "text", on_text, DOCA_ARGP_TYPE_STRING);
	if (how & MANDATORY)
		doca_argp_param_set_mandatory(text);
	if (how & SINGULAR)
		doca_argp_param_set_singular(text);
	if (how & CLI_ONLY)
		doca_argp_param_set_cli_only(text);
	OK(doca_argp_register_param(text));
	struct doca_argp_param *number = param("num", "number", on_number, DOCA_ARGP_TYPE_INT);

	if (how & MULTIPLE)
		doca_argp_param_set_multiplicity(number);
	OK(doca_argp_register_param(number));
	OK(doca_argp_register_param(param(NULL, "flag", on_flag, DOCA_ARGP_TYPE_BOOLEAN)));
	OK(doca_argp_register_validation_callback(on_validate));
	OK(doca_argp_register_logger_callback(on_say));
}

/* Parses a command line, and destroys the parser. */
static doca_error_t line(const char *words)
{
	char copy[256];
	char *argv[32];
	int argc = 0;
	doca_error_t result;

	snprintf(copy, sizeof(copy), "%s", words);
	argv[argc++] = (char *)"./tester";
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	result = doca_argp_start(argc, argv);
	OK(doca_argp_destroy());
	return result;
}

static const char *json(const char *content)
{
	static char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/tmp/doca-emu-argp-%d.json", (int)getpid());
	file = fopen(path, "w");
	CHECK(file != NULL);
	fputs(content, file);
	fclose(file);
	return path;
}

static doca_error_t from_json(int how, const char *content, const char *more)
{
	char words[256];

	begin(how);
	snprintf(words, sizeof(words), "--json %s %s", json(content), more);
	return line(words);
}

static doca_error_t on_dpdk(int argc, char **argv)
{
	CHECK(argc == 3 && argv[3] == NULL);
	CHECK(strcmp(argv[0], "./tester") == 0 && strcmp(argv[1], "-a03:00.0") == 0 && strcmp(argv[2], "-c3") == 0);
	config.times++;
	return DOCA_SUCCESS;
}

static void lifetimes(void)
{
	struct doca_argp_param *made = NULL;
	struct doca_argp_cmd *cmd = NULL;

	IS(DOCA_ERROR_BAD_STATE, doca_argp_destroy());
	IS(DOCA_ERROR_BAD_STATE, doca_argp_param_create(&made));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_cmd_create(&cmd));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_start(0, NULL));
	OK(doca_argp_init(NULL, &config));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_init(NULL, &config));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_param_create(NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_register_param(NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_register_version_callback(NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_start(-1, NULL));

	/* Flags that are incomplete or whose name is taken. The parser owns these flags, although their registration fails. */
	OK(doca_argp_param_create(&made));
	IS(DOCA_ERROR_INITIALIZATION, doca_argp_register_param(made));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_param_destroy(made));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_register_param(made));
	IS(DOCA_ERROR_INITIALIZATION, doca_argp_register_param(param("x", NULL, on_text, DOCA_ARGP_TYPE_UNKNOWN)));
	IS(DOCA_ERROR_INITIALIZATION, doca_argp_register_param(param("x", NULL, NULL, DOCA_ARGP_TYPE_STRING)));
	IS(DOCA_ERROR_INITIALIZATION, doca_argp_register_param(param(NULL, NULL, on_text, DOCA_ARGP_TYPE_STRING)));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_register_param(param("j", "other", on_text, DOCA_ARGP_TYPE_STRING)));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_register_param(param("x", "log-level", on_text, DOCA_ARGP_TYPE_STRING)));
	OK(doca_argp_register_param(param("x", "xx", on_text, DOCA_ARGP_TYPE_STRING)));
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_register_param(param("x", "yy", on_text, DOCA_ARGP_TYPE_STRING)));
	/* The program destroys objects that were never registered. */
	OK(doca_argp_param_create(&made));
	OK(doca_argp_param_destroy(made));
	OK(doca_argp_cmd_create(&cmd));
	OK(doca_argp_cmd_destroy(cmd));
	IS(DOCA_ERROR_BAD_STATE, doca_argp_disable_logger_callback());
	OK(doca_argp_register_logger_callback(on_say));
	IS(DOCA_ERROR_ALREADY_EXIST, doca_argp_register_logger_callback(on_say));
	OK(doca_argp_disable_logger_callback());
	OK(doca_argp_destroy());
}

static void words(void)
{
	int level = 0;

	begin(0);
	OK(line(""));
	CHECK(config.validated == 1 && config.times == 0);
	begin(0);
	OK(line("-t hello -num 7 --flag"));
	CHECK(strcmp(config.text, "hello") == 0 && config.number == 7 && config.flag);
	begin(0);
	OK(line("--text=a=b --number -5"));
	CHECK(strcmp(config.text, "a=b") == 0 && config.number == -5 && !config.flag);
	begin(MULTIPLE);
	OK(line("--number 1 -num 0x10 --number 3"));
	CHECK(config.times == 3 && config.number == 3);

	begin(0);
	OK(line("-l 60 --sdk-log-level 40"));
	OK(doca_argp_get_log_level(&level));
	CHECK(level == 60 && doca_log_level_get_global_lower_limit() == 60);
	OK(doca_argp_get_sdk_log_level(&level));
	CHECK(level == 40 && doca_log_level_get_global_sdk_limit() == 40);
	IS(DOCA_ERROR_INVALID_VALUE, doca_argp_get_log_level(NULL));

	/* Mistakes name the flag. */
	begin(0);
	IS(DOCA_ERROR_NOT_SUPPORTED, line("--nonsense 3"));
	CHECK(strstr(said, "--nonsense") != NULL && config.validated == 0);
	begin(0);
	IS(DOCA_ERROR_NOT_SUPPORTED, line("stray"));
	CHECK(strstr(said, "stray") != NULL);
	begin(0);
	IS(DOCA_ERROR_INVALID_VALUE, line("--number ten"));
	CHECK(strstr(said, "--number") != NULL && strstr(said, "ten") != NULL);
	begin(0);
	IS(DOCA_ERROR_INVALID_VALUE, line("--number 99999999999"));
	begin(0);
	IS(DOCA_ERROR_INVALID_VALUE, line("-t"));
	begin(0);
	IS(DOCA_ERROR_INVALID_VALUE, line("-l 55"));
	CHECK(strstr(said, "-l") != NULL && strstr(said, "55") != NULL);
	begin(0);
	IS(DOCA_ERROR_INVALID_VALUE, line("-t a -t b"));
	CHECK(strstr(said, "--text") != NULL && config.text[0] == '\0');
	begin(MANDATORY);
	IS(DOCA_ERROR_INVALID_VALUE, line("--flag"));
	CHECK(strstr(said, "--text") != NULL && !config.flag);
	begin(SINGULAR);
	IS(DOCA_ERROR_INVALID_VALUE, line("-t a --flag"));
	begin(SINGULAR);
	OK(line("-t a"));
	begin(0);
	config.refuse = DOCA_ERROR_NOT_FOUND;
	IS(DOCA_ERROR_NOT_FOUND, line("-t a --flag"));
	CHECK(!config.flag);
	begin(0);
	IS(DOCA_ERROR_BAD_CONFIG, line("--number 13"));
}

static void files(void)
{
	OK(from_json(0, "/* a file */ {\n// of flags\n\"doca_general_flags\": {\"log-level\": 50},\n"
		"\"doca_program_flags\": {\"text\": \"from // json\", \"number\": 9, \"flag\": true,},}", ""));
	CHECK(strcmp(config.text, "from // json") == 0 && config.number == 9 && config.flag);
	CHECK(doca_log_level_get_global_lower_limit() == 50);
	OK(from_json(0, "{\"doca_program_flags\": {\"text\": \"file\"}}", "--text line"));
	CHECK(strcmp(config.text, "line") == 0);
	OK(from_json(MANDATORY, "{\"doca_program_flags\": {\"text\": \"file\"}}", ""));
	OK(from_json(MULTIPLE, "{\"doca_program_flags\": {\"number\": [1, 2, 3]}}", ""));
	CHECK(config.times == 3);
	IS(DOCA_ERROR_INVALID_VALUE, from_json(0, "{\"doca_program_flags\": {\"number\": [1, 2]}}", ""));
	IS(DOCA_ERROR_INVALID_VALUE, from_json(0, "{\"doca_program_flags\": {\"number\": \"1\"}}", ""));
	CHECK(strstr(said, "number") != NULL);
	IS(DOCA_ERROR_INVALID_VALUE, from_json(0, "{\"doca_program_flags\": {\"number\": 1.5}}", ""));
	IS(DOCA_ERROR_INVALID_VALUE, from_json(0, "{\"doca_program_flags\": {\"flag\": 1}}", ""));
	IS(DOCA_ERROR_INVALID_VALUE, from_json(CLI_ONLY, "{\"doca_program_flags\": {\"text\": \"a\"}}", ""));
	IS(DOCA_ERROR_NOT_SUPPORTED, from_json(0, "{\"doca_program_flags\": {\"other\": 1}}", ""));
	IS(DOCA_ERROR_INVALID_VALUE, from_json(0, "{\"doca_general_flags\": {\"log-level\": 51}}", ""));
	IS(DOCA_ERROR_IO_FAILED, from_json(0, "{\"doca_program_flags\": {\"text\" \"a\"}}", ""));
	IS(DOCA_ERROR_IO_FAILED, from_json(0, "[]", ""));
	unlink(json(""));
	begin(0);
	IS(DOCA_ERROR_IO_FAILED, line("-j /nowhere/at/all.json"));
	CHECK(strstr(said, "/nowhere/at/all.json") != NULL);
}

static void commands(void)
{
	for (int which = 0; which < 5; which++) {
		struct doca_argp_cmd *outer, *inner;
		struct doca_argp_param *shared;

		memset(&config, 0, sizeof(config));
		OK(doca_argp_init("tester", &config));
		OK(doca_argp_register_logger_callback(on_say));
		shared = param("n", "number", on_number, DOCA_ARGP_TYPE_INT);
		doca_argp_param_set_inherited(shared);
		OK(doca_argp_register_param(shared));
		OK(doca_argp_cmd_create(&outer));
		OK(doca_argp_cmd_create(&inner));
		doca_argp_cmd_set_name(outer, "outer");
		doca_argp_cmd_set_description(outer, "the outer one");
		doca_argp_cmd_set_name(inner, "inner");
		doca_argp_cmd_set_description(inner, "the inner one");
		doca_argp_cmd_set_callback(inner, on_command);
		OK(doca_argp_cmd_register_param(inner, param("t", "text", on_text, DOCA_ARGP_TYPE_STRING)));
		OK(doca_argp_cmd_register_cmd(outer, inner));
		IS(DOCA_ERROR_BAD_STATE, doca_argp_cmd_register_cmd(outer, inner));
		OK(doca_argp_register_cmd(outer));
		IS(DOCA_ERROR_BAD_STATE, doca_argp_register_cmd(outer));
		switch (which) {
		case 0:
			OK(line("outer inner -t a -n 3"));
			CHECK(strcmp(config.command, "chosen") == 0 && config.number == 3);
			CHECK(strcmp(config.text, "a") == 0);
			break;
		case 1:
			IS(DOCA_ERROR_NOT_SUPPORTED, line("inner"));
			break;
		case 2:
			IS(DOCA_ERROR_INVALID_VALUE, line("outer"));
			CHECK(strstr(said, "inner") != NULL);
			break;
		case 3:
			IS(DOCA_ERROR_NOT_SUPPORTED, line("outer -t a inner"));
			break;
		default:
			IS(DOCA_ERROR_NOT_SUPPORTED, line("outer inner other"));
			CHECK(config.command[0] == '\0');
			break;
		}
	}
}

static void help(void)
{
	int pipes[2];
	char text[4096];
	size_t length = 0;
	ssize_t got;
	int status;
	pid_t child;

	CHECK(pipe(pipes) == 0);
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(dup2(pipes[1], 1) == 1);
		begin(MANDATORY);
		(void)line("-h");
		_exit(99);
	}
	close(pipes[1]);
	while ((got = read(pipes[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	close(pipes[0]);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(strstr(text, "Usage: tester [DOCA Flags] [Program Flags]\n\nDOCA Flags:\n") == text);
	CHECK(strstr(text, "\n  -h, --help                        Print a help synopsis\n") != NULL);
	CHECK(strstr(text, "\n  -j, --json <path>                 ") != NULL);
	CHECK(strstr(text, "\nProgram Flags:\n  -t, --text                        what it is\n") != NULL);
}

int main(void)
{
	lifetimes();
	words();
	files();
	commands();
	help();

	/* DPDK's arguments come before two dashes. */
	begin(0);
	doca_argp_set_dpdk_program(on_dpdk);
	OK(line("-a03:00.0 -c3 -- --flag"));
	CHECK(config.times == 1 && config.flag);
	return 0;
}
