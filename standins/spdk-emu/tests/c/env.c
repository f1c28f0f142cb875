/* Tests of the environment with two cores: setting up, cores, memory, pools, rings, strings, the log. */
#include "spdk/stdinc.h"

#include "spdk/barrier.h"
#include "spdk/config.h"
#include "spdk/cpuset.h"
#include "spdk/endian.h"
#include "spdk/env.h"
#include "spdk/env_dpdk.h"
#include "spdk/likely.h"
#include "spdk/log.h"
#include "spdk/memory.h"
#include "spdk/mmio.h"
#include "spdk/queue.h"
#include "spdk/string.h"
#include "spdk/util.h"
#include "spdk/version.h"

#include "check.h"

SPDK_LOG_REGISTER_COMPONENT(probe)

/* The last part of a path that a macro contains. SPDK's tests get it in the same way. */
#define LAST_PART_OF(path) (strrchr(#path, '/') + 1)
#define LAST_PART(path) LAST_PART_OF(path)

static void configuration(void)
{
	CHECK(strcmp(LAST_PART(SPDK_CONFIG_ENV), "env_dpdk") == 0);
}

static void setting_up(void)
{
	struct spdk_env_opts opts;

	CHECK(spdk_dma_malloc(64, 0, NULL) == NULL);
	CHECK(spdk_env_init(NULL) == -EINVAL);
	opts.opts_size = sizeof(opts);
	spdk_env_opts_init(&opts);
	CHECK(opts.opts_size == sizeof(opts) && opts.mem_size == -1 && strcmp(opts.core_mask, "0x1") == 0);
	opts.name = "env";
	opts.core_mask = "nonsense";
	CHECK(spdk_env_init(&opts) == -EINVAL);
	opts.core_mask = "0x3";
	opts.lcore_map = "0,1";
	CHECK(spdk_env_init(&opts) == -EINVAL);
	opts.lcore_map = NULL;
	opts.no_huge = true;
	CHECK(spdk_env_init(&opts) == -EINVAL);
	opts.no_huge = false;
	opts.mem_size = 256;
	CHECK(spdk_env_init(&opts) == 0);
	CHECK(spdk_env_init(&opts) == -EINVAL);
	CHECK(spdk_env_init(NULL) == 0);
	CHECK(spdk_process_is_primary());
}

struct seen {
	uint32_t core;
	int go;
};

static int on_core(void *arg)
{
	struct seen *seen = (struct seen *)arg;

	while (!__atomic_load_n(&seen->go, __ATOMIC_ACQUIRE))
		spdk_pause();
	seen->core = spdk_env_get_current_core();
	return 0;
}

static void *unbound(void *arg)
{
	return arg;
}

static void cores(void)
{
	struct seen seen = { UINT32_MAX, 0 };
	struct spdk_cpuset set;
	uint32_t core, count = 0;
	uint64_t begun;

	SPDK_ENV_FOREACH_CORE(core) {
		CHECK(core == count);
		CHECK(spdk_env_get_numa_id(core) >= 0);
		count++;
	}
	CHECK(count == 2 && spdk_env_get_core_count() == 2 && spdk_env_get_last_core() == 1);
	CHECK(spdk_env_get_current_core() == 0 && spdk_env_get_main_core() == 0);
	CHECK(spdk_env_thread_launch_pinned(0, on_core, &seen) != 0);
	CHECK(spdk_env_thread_launch_pinned(2, on_core, &seen) != 0);
	CHECK(spdk_env_thread_launch_pinned(1, on_core, &seen) == 0);
	CHECK(spdk_env_thread_launch_pinned(1, on_core, &seen) == -EBUSY);
	__atomic_store_n(&seen.go, 1, __ATOMIC_RELEASE);
	spdk_env_thread_wait_all();
	CHECK(seen.core == 1);
	CHECK(spdk_env_thread_launch_pinned(1, on_core, &seen) == 0);
	spdk_env_thread_wait_all();
	spdk_env_get_cpuset(&set);
	CHECK(spdk_cpuset_count(&set) == 2 && strcmp(spdk_cpuset_fmt(&set), "3") == 0);
	CHECK(spdk_cpuset_parse(&set, "[3,5-6]") == 0 && spdk_cpuset_get_cpu(&set, 6) && !spdk_cpuset_get_cpu(&set, 4));
	CHECK(spdk_cpuset_parse(&set, "[3") < 0);
	CHECK(spdk_call_unaffinitized(unbound, &seen) == &seen);
	begun = spdk_get_ticks();
	spdk_delay_us(2000);
	CHECK(spdk_get_ticks() - begun >= spdk_get_ticks_hz() / 500);
}

static void memory(void)
{
	uint64_t size = 3 * VALUE_2MB;
	char *buf = (char *)spdk_dma_zmalloc(3 * VALUE_2MB, VALUE_2MB, NULL), *other;

	CHECK(buf != NULL && _2MB_OFFSET(buf) == 0 && spdk_mem_all_zero(buf, 3 * VALUE_2MB));
	CHECK(spdk_vtophys(buf + 5, &size) != SPDK_VTOPHYS_ERROR && size > 0 && size < 3 * VALUE_2MB);
	CHECK(spdk_vtophys(&size, NULL) == SPDK_VTOPHYS_ERROR);
	CHECK(spdk_mem_register(buf, VALUE_2MB) == -EBUSY);
	CHECK(spdk_mem_unregister(buf, VALUE_2MB) != 0);
	CHECK(spdk_malloc(64, 0, &size, SPDK_ENV_NUMA_ID_ANY, SPDK_MALLOC_DMA) == NULL);
	CHECK(spdk_malloc(64, 0, NULL, SPDK_ENV_NUMA_ID_ANY, 0) == NULL);
	CHECK(spdk_malloc((size_t)300 << 20, 0, NULL, SPDK_ENV_NUMA_ID_ANY, SPDK_MALLOC_DMA) == NULL);
	CHECK(spdk_dma_malloc(64, 3 * 64, NULL) == NULL);
	memset(buf, 7, 64);
	other = (char *)spdk_dma_realloc(buf, 128, 4096, NULL);
	CHECK(other != NULL && other[63] == 7 && (uintptr_t)other % 4096 == 0);
	spdk_dma_free(other);
	spdk_dma_free(NULL);

	CHECK(spdk_memzone_reserve("zone", 100, SPDK_ENV_NUMA_ID_ANY, 0) != NULL);
	CHECK(spdk_memzone_reserve("zone", 100, SPDK_ENV_NUMA_ID_ANY, 0) == NULL);
	CHECK(spdk_memzone_lookup("zone") != NULL && spdk_memzone_free("zone") == 0);
	CHECK(spdk_memzone_lookup("zone") == NULL && spdk_memzone_free("zone") == -1);
}

static void each_object(struct spdk_mempool *pool, void *arg, void *obj, unsigned i)
{
	(void)pool;
	(void)obj;
	*(unsigned *)arg += i;
}

static void pools_and_rings(void)
{
	struct spdk_mempool *pool = spdk_mempool_create("pool", 10, 100, SPDK_MEMPOOL_DEFAULT_CACHE_SIZE, SPDK_ENV_SOCKET_ID_ANY);
	struct spdk_ring *ring = spdk_ring_create(SPDK_RING_TYPE_MP_MC, 4, SPDK_ENV_NUMA_ID_ANY);
	void *elements[11], *out[11];
	unsigned sum = 0;
	size_t room = 99;
	int i;

	CHECK(pool != NULL && spdk_mempool_lookup("pool") == pool && strcmp(spdk_mempool_get_name(pool), "pool") == 0);
	CHECK(spdk_mempool_create("pool", 10, 100, 0, SPDK_ENV_NUMA_ID_ANY) == NULL);
	CHECK(spdk_mempool_get_bulk(pool, elements, 11) != 0 && spdk_mempool_count(pool) == 10);
	for (i = 0; i < 10; i++) {
		elements[i] = spdk_mempool_get(pool);
		CHECK(elements[i] != NULL && spdk_vtophys(elements[i], NULL) != SPDK_VTOPHYS_ERROR);
		memset(elements[i], i, 100);
	}
	CHECK(spdk_mempool_get(pool) == NULL);
	for (i = 0; i < 10; i++)
		CHECK(((char *)elements[i])[0] == i && ((char *)elements[i])[99] == i);
	CHECK(spdk_mempool_obj_iter(pool, each_object, &sum) == 10 && sum == 45);

	CHECK(ring != NULL && spdk_ring_enqueue(ring, elements, 5, &room) == 0 && room == 4);
	CHECK(spdk_ring_enqueue(ring, elements, 3, &room) == 3 && room == 1 && spdk_ring_count(ring) == 3);
	CHECK(spdk_ring_dequeue(ring, out, 10) == 3 && out[2] == elements[2]);
	spdk_ring_free(ring);
	spdk_mempool_put_bulk(pool, elements, 10);
	spdk_mempool_free(pool);
	CHECK(spdk_mempool_lookup("pool") == NULL);
}

struct item {
	int number;
	TAILQ_ENTRY(item) link;
	STAILQ_ENTRY(item) slink;
};

static void lists(void)
{
	TAILQ_HEAD(items, item) list = TAILQ_HEAD_INITIALIZER(list), other = TAILQ_HEAD_INITIALIZER(other);
	STAILQ_HEAD(sitems, item) slist = STAILQ_HEAD_INITIALIZER(slist);
	struct item all[4], *item, *next;
	int i, sum = 0;

	for (i = 0; i < 4; i++) {
		all[i].number = i;
		TAILQ_INSERT_TAIL(&list, &all[i], link);
		STAILQ_INSERT_TAIL(&slist, &all[i], slink);
	}
	TAILQ_FOREACH_SAFE(item, &list, link, next) {
		if (item->number % 2 == 0)
			TAILQ_REMOVE(&list, item, link);
	}
	TAILQ_SWAP(&list, &other, item, link);
	CHECK(TAILQ_EMPTY(&list));
	TAILQ_FOREACH_REVERSE_SAFE(item, &other, items, link, next)
		sum = sum * 10 + item->number;
	CHECK(sum == 31);
	CHECK(STAILQ_LAST(&slist, item, slink) == &all[3]);
}

static void strings(void)
{
	char *text2, two[2];
	uint64_t size, one = 1;
	bool prefix;

	CHECK(spdk_strtol("32", 10) == 32 && spdk_strtol("-1", 10) == -ERANGE && spdk_strtol("3x", 10) == -EINVAL);
	CHECK(spdk_strtol("99999999999999999999", 10) == -ERANGE && spdk_strtoll("0x10", 16) == 16);
	CHECK(spdk_parse_capacity("4M", &size, &prefix) == 0 && size == 4 << 20 && prefix);
	text2 = spdk_sprintf_append_realloc(spdk_sprintf_alloc("%d-", 1), "%s", "two");
	CHECK(text2 != NULL && strcmp(text2, "1-two") == 0);
	free(text2);
	CHECK(strcmp(spdk_strerror(ENOMEM), strerror(ENOMEM)) == 0);
	CHECK(spdk_u32log2(4096) == 12 && spdk_align32pow2(5) == 8 && spdk_u64_is_pow2(64) && spdk_divide_round_up(9, 4) == 3);
	CHECK(SPDK_ALIGN_CEIL(5, 8) == 8 && SPDK_COUNTOF(two) == 2 && spdk_min(1, 2) == 1);
	CHECK(from_be32("\0\0\1\2") == 258 && from_le16("\1\2") == 513);
	spdk_mmio_write_8(&one, 2);
	spdk_mb();
	CHECK(spdk_likely(spdk_mmio_read_8(&one) == 2));
	CHECK(SPDK_VERSION >= SPDK_VERSION_NUM(26, 9, 0));
}

static int told;

static void on_log(int level, const char *file, const int line, const char *func, const char *format, va_list args)
{
	char text[64];

	(void)file;
	(void)line;
	(void)func;
	vsnprintf(text, sizeof(text), format, args);
	CHECK(level == SPDK_LOG_WARN && strcmp(text, "5 of them") == 0);
	told++;
}

static void logging(void)
{
	CHECK(!spdk_log_get_flag("probe") && spdk_log_set_flag("PROBE") == 0 && spdk_log_get_flag("probe"));
	CHECK(spdk_log_set_flag("other") != 0 && SPDK_LOG_probe.enabled);
	spdk_log_open(on_log);
	SPDK_WARNLOG("%d of them", 5);
	spdk_log_close();
	CHECK(told == 1);
	spdk_log_set_print_level(SPDK_LOG_NOTICE);
	SPDK_NOTICELOG("seen %s\n", "by all");
	SPDK_INFOLOG(probe, "not seen\n");
	SPDK_ERRLOG_RATELIMIT("once\n");
}

int main(void)
{
	configuration();
	setting_up();
	cores();
	memory();
	pools_and_rings();
	lists();
	strings();
	logging();
	spdk_env_fini();
	puts("env: all as it should be");
	return 0;
}
