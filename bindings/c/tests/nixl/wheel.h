// NIXL's C interface in its wheel, for figures.c and hosts.c.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The functions of libnixl_capi.so that these programs call. All return 0 on success. Objects are pointers.
typedef void *object;
enum { DONE = 0, IN_PROGRESS = 1, DRAM = 0, READ = 0, WRITE = 1 };
int nixl_capi_create_agent(const char *name, object *agent);
int nixl_capi_destroy_agent(object agent);
int nixl_capi_create_params(object *params);
int nixl_capi_params_add(object params, const char *key, const char *value);
int nixl_capi_create_backend(object agent, const char *plugin, object params, object *backend);
int nixl_capi_create_opt_args(object *args);
int nixl_capi_opt_args_add_backend(object args, object backend);
int nixl_capi_create_reg_dlist(int type, object *list);
int nixl_capi_reg_dlist_add_desc(object list, uintptr_t address, size_t len, uint64_t device, const void *text, size_t text_len);
int nixl_capi_register_mem(object agent, object list, object args);
int nixl_capi_deregister_mem(object agent, object list, object args);
int nixl_capi_get_local_md(object agent, void **data, size_t *len);
int nixl_capi_load_remote_md(object agent, const void *data, size_t len, char **name);
int nixl_capi_invalidate_remote_md(object agent, const char *name);
int nixl_capi_create_xfer_dlist(int type, object *list);
int nixl_capi_destroy_xfer_dlist(object list);
int nixl_capi_xfer_dlist_add_desc(object list, uintptr_t address, size_t len, uint64_t device);
int nixl_capi_create_xfer_req(object agent, int operation, object local, object remote, const char *name, object *request, object args);
int nixl_capi_post_xfer_req(object agent, object request, object args);
int nixl_capi_get_xfer_status(object agent, object request);
int nixl_capi_release_xfer_req(object agent, object request);
int nixl_capi_destroy_xfer_req(object request);

static void expect(bool holds, int line, const char *what) {
    if (!holds) {
        fprintf(stderr, "line %d: %s\n", line, what);
        exit(1);
    }
}
#define EXPECT(condition) expect((condition), __LINE__, #condition)

// An agent with one backend and registered memory.
struct side {
    object agent, args, registered;
};

static struct side start(const char *name, const char *backend, char **options, unsigned char *memory, size_t len) {
    struct side side;
    object params, made;
    EXPECT(nixl_capi_create_agent(name, &side.agent) == 0);
    EXPECT(nixl_capi_create_params(&params) == 0);
    for (; *options; options++) {
        char *value = strchr(*options, '=');
        EXPECT(value);
        *value = '\0';
        EXPECT(nixl_capi_params_add(params, *options, value + 1) == 0);
        *value = '=';
    }
    EXPECT(nixl_capi_create_backend(side.agent, backend, params, &made) == 0);
    EXPECT(nixl_capi_create_opt_args(&side.args) == 0);
    EXPECT(nixl_capi_opt_args_add_backend(side.args, made) == 0);
    EXPECT(nixl_capi_create_reg_dlist(DRAM, &side.registered) == 0);
    EXPECT(nixl_capi_reg_dlist_add_desc(side.registered, (uintptr_t)memory, len, 0, "", 0) == 0);
    EXPECT(nixl_capi_register_mem(side.agent, side.registered, side.args) == 0);
    return side;
}

static void end(struct side side) {
    EXPECT(nixl_capi_deregister_mem(side.agent, side.registered, side.args) == 0);
    EXPECT(nixl_capi_destroy_agent(side.agent) == 0);
}

static void read_all(int from, void *to, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t got = read(from, (char *)to + at, len - at);
        EXPECT(got > 0);
        at += (size_t)got;
    }
}

static void write_all(int to, const void *from, size_t len) { EXPECT(write(to, from, len) == (ssize_t)len); }

static void fill(unsigned char *memory, size_t len, unsigned seed) {
    uint64_t value = seed;
    for (size_t at = 0; at < len; at += 8) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        memcpy(memory + at, &value, 8);
    }
}
