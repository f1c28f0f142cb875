/* All headers in one program, their constants, and the macros that programs use. */
#include <doca_argp.h>
#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_buf_pool.h>
#include <doca_clock.h>
#include <doca_comch.h>
#include <doca_comch_consumer.h>
#include <doca_comch_producer.h>
#include <doca_compat.h>
#include <doca_config.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_graph.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_mmap_advise.h>
#include <doca_pe.h>
#include <doca_sync_event.h>
#include <doca_types.h>
#include <doca_version.h>

#include <stdbool.h>

#include "check.h"

DOCA_LOG_REGISTER(HEADERS::MAIN)

static doca_error_t first_failure(doca_error_t first, doca_error_t second)
{
	doca_error_t result = first;

	DOCA_ERROR_PROPAGATE(result, second);
	return result;
}

struct versioned {
	DOCA_STRUCT_START;
	int value;
};

static void check_versioned_structs(void)
{
	struct versioned filled = { 0, 7 };
	struct versioned *filled_at = &filled;

#ifndef __cplusplus
	struct versioned listed = { DOCA_STRUCT_CTOR_LIST_START, .value = 7 };
	DOCA_STRUCT_DEF(versioned, defined);

	CHECK(DOCA_STRUCT_GET_VERSION(&listed) == DOCA_VERSION_EXACT && listed.value == 7);
	CHECK(DOCA_STRUCT_GET_VERSION(&defined) == DOCA_VERSION_EXACT && defined.value == 0);
#endif
	DOCA_STRUCT_CTOR(filled);
	CHECK(DOCA_STRUCT_GET_VERSION(&filled) == DOCA_VERSION_EXACT && filled.value == 7);
	DOCA_STRUCT_MEMSET_CTOR(filled);
	CHECK(DOCA_STRUCT_GET_VERSION(&filled) == DOCA_VERSION_EXACT && filled.value == 0);
	filled.__doca_api_version = 1;
	DOCA_STRUCT_PTR_CTOR(filled_at);
	CHECK(DOCA_STRUCT_GET_VERSION(filled_at) == DOCA_VERSION_EXACT);
	filled.value = 7;
	DOCA_STRUCT_PTR_MEMSET_CTOR(filled_at);
	CHECK(DOCA_STRUCT_GET_VERSION(filled_at) == DOCA_VERSION_EXACT && filled.value == 0);
}

int main(void)
{
	const bool bluefield2 = DOCA_ARCH_DPU_BF2;

	CHECK(!bluefield2);
	check_versioned_structs();
	CHECK(sizeof(union doca_data) == 8);
	CHECK(sizeof(doca_error_t) == 4);
	CHECK(sizeof(struct doca_gather_list) == 24);
	CHECK(doca_event_invalid_handle == -1);
	CHECK(DOCA_ERROR_SKIPPED == 30);

	CHECK(first_failure(DOCA_SUCCESS, DOCA_SUCCESS) == DOCA_SUCCESS);
	CHECK(first_failure(DOCA_SUCCESS, DOCA_ERROR_FULL) == DOCA_ERROR_FULL);
	CHECK(first_failure(DOCA_ERROR_EMPTY, DOCA_ERROR_FULL) == DOCA_ERROR_EMPTY);
	CHECK(DOCA_IS_ERROR(DOCA_ERROR_FULL) && !DOCA_IS_ERROR(DOCA_SUCCESS));
	CHECK(doca_likely(1) && !doca_unlikely(0));

	CHECK(strcmp(doca_version(), DOCA_VERSION_STRING) == 0);
	CHECK(strlen(doca_version_runtime()) > 0);
	CHECK(DOCA_VERSION_LTE_CURRENT(2, 5, 0) && DOCA_VERSION_LTE_CURRENT(3, 0, 58));
	CHECK(!DOCA_VERSION_LTE_CURRENT(3, 0, 59) && !DOCA_VERSION_LTE_CURRENT(4, 0, 0));
	CHECK(DOCA_VERSION_EQ_CURRENT(DOCA_VERSION_MAJOR, DOCA_VERSION_MINOR, DOCA_VERSION_PATCH));
	CHECK(!DOCA_VERSION_EQ_CURRENT(2, 9, 0));

	for (int i = DOCA_SUCCESS; i <= DOCA_ERROR_SKIPPED; i++) {
		CHECK(strncmp(doca_error_get_name((doca_error_t)i), "DOCA_", 5) == 0);
		CHECK(strlen(doca_error_get_descr((doca_error_t)i)) > 0);
	}
	/* Codes that only a newer library returns. */
	CHECK(doca_error_get_name((doca_error_t)9999) != NULL);
	CHECK(doca_error_get_descr((doca_error_t)9999) != NULL);

	/* Without a backend, the messages are not shown. The compiler checks their arguments. */
	DOCA_LOG_CRIT("%s", "critical");
	DOCA_LOG_ERR("no arguments");
	DOCA_LOG_WARN("%d of %zu", 1, sizeof(int));
	DOCA_LOG_INFO("%s", "info");
	DOCA_LOG_DBG("%s", "debug");
	DOCA_LOG_TRC("%s", "trace");
	return 0;
}
