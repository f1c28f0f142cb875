/* doca_argp.h: command lines.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_ARGP_H
#define DMA_DOCA_WORKQ_ARGP_H

#include <doca_compat.h>
#include <doca_error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A flag. */
struct doca_argp_param;

enum doca_argp_type {
	DOCA_ARGP_TYPE_UNKNOWN = 0,
	DOCA_ARGP_TYPE_STRING = 1,
	DOCA_ARGP_TYPE_INT = 2,
	DOCA_ARGP_TYPE_BOOLEAN = 3,
	DOCA_ARGP_TYPE_JSON_OBJ = 4,
};

typedef doca_error_t (*callback_func)(void *, void *);
typedef doca_error_t (*dpdk_callback)(int argc, char **argv);
typedef doca_error_t (*validation_callback)(void *);

DOCA_EXPERIMENTAL
void doca_argp_usage(void);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_init(const char *program_name, void *program_config);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_param(struct doca_argp_param *input_param);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_version_callback(callback_func callback);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_validation_callback(validation_callback callback);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_start(int argc, char **argv);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_destroy(void);

DOCA_EXPERIMENTAL
void doca_argp_set_dpdk_program(dpdk_callback callback);

DOCA_EXPERIMENTAL
void doca_argp_set_grpc_program(void);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_param_create(struct doca_argp_param **param);

DOCA_EXPERIMENTAL
void doca_argp_param_set_short_name(struct doca_argp_param *param, const char *name);

DOCA_EXPERIMENTAL
void doca_argp_param_set_long_name(struct doca_argp_param *param, const char *name);

DOCA_EXPERIMENTAL
void doca_argp_param_set_arguments(struct doca_argp_param *param, const char *arguments);

DOCA_EXPERIMENTAL
void doca_argp_param_set_description(struct doca_argp_param *param, const char *description);

DOCA_EXPERIMENTAL
void doca_argp_param_set_callback(struct doca_argp_param *param, callback_func callback);

DOCA_EXPERIMENTAL
void doca_argp_param_set_type(struct doca_argp_param *param, enum doca_argp_type type);

DOCA_EXPERIMENTAL
void doca_argp_param_set_mandatory(struct doca_argp_param *param);

DOCA_EXPERIMENTAL
void doca_argp_param_set_cli_only(struct doca_argp_param *param);

DOCA_EXPERIMENTAL
void doca_argp_param_set_multiplicity(struct doca_argp_param *param);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_param_destroy(struct doca_argp_param *param);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_get_grpc_addr(const char **address);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_get_log_level(int *log_level);

#ifdef __cplusplus
}
#endif

#endif
