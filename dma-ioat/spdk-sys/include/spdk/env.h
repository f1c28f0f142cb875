/* spdk/env.h: The environment: memory, cores, time, PCI.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_ENV_H
#define SPDK_ENV_H

#include "spdk/assert.h"
#include "spdk/pci_ids.h"
#include "spdk/queue.h"
#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPDK_ENV_NUMA_ID_ANY (-1)
#define SPDK_ENV_SOCKET_ID_ANY (-1) /* earlier name */
#define SPDK_ENV_LCORE_ID_ANY UINT32_MAX

#define SPDK_MALLOC_DMA 0x01
#define SPDK_MALLOC_SHARE 0x02

/* Setting up the environment, once per process. */

struct spdk_pci_addr {
	uint32_t domain;
	uint8_t bus;
	uint8_t dev;
	uint8_t func;
};

/* New releases add fields at the end. Before 24.09, the library fills and reads the fields that it knows; from 24.09 on, the fields within opts_size. */
struct spdk_env_opts {
	const char *name;
	const char *core_mask;
	const char *lcore_map;
	int shm_id;
	int mem_channel;
	int main_core;
	int mem_size; /* MiB */
	bool no_pci;
	bool hugepage_single_segments;
	bool unlink_hugepage;
	bool no_huge; /* from 24.01 on */
	uint32_t reserved;
	size_t num_pci_addr;
	const char *hugedir;
	struct spdk_pci_addr *pci_blocked;
	struct spdk_pci_addr *pci_allowed;
	const char *iova_mode;
	uint64_t base_virtaddr;
	void *env_context;
	const char *vf_token;
	size_t opts_size; /* from 24.09 on */
	bool enforce_numa;
	uint8_t reserved2[7];
};
SPDK_STATIC_ASSERT(offsetof(struct spdk_env_opts, opts_size) == 112, "offset of opts_size");
SPDK_STATIC_ASSERT(sizeof(struct spdk_env_opts) == 128, "size of spdk_env_opts");

void spdk_env_opts_init(struct spdk_env_opts *opts);
int spdk_env_init(const struct spdk_env_opts *opts);
void spdk_env_fini(void);
bool spdk_process_is_primary(void);

/* Memory that devices can access. */

void *spdk_malloc(size_t size, size_t align, uint64_t *unused, int numa_id, uint32_t flags);
void *spdk_zmalloc(size_t size, size_t align, uint64_t *unused, int numa_id, uint32_t flags);
void *spdk_realloc(void *buf, size_t size, size_t align);
void spdk_free(void *buf);

void *spdk_dma_malloc(size_t size, size_t align, uint64_t *unused);
void *spdk_dma_malloc_socket(size_t size, size_t align, uint64_t *unused, int numa_id);
void *spdk_dma_zmalloc(size_t size, size_t align, uint64_t *unused);
void *spdk_dma_zmalloc_socket(size_t size, size_t align, uint64_t *unused, int numa_id);
void *spdk_dma_realloc(void *buf, size_t size, size_t align, uint64_t *unused);
void spdk_dma_free(void *buf);

#define SPDK_VTOPHYS_ERROR (0xFFFFFFFFFFFFFFFFULL)

/* size: the requested length (in), and its contiguous part (out). */
uint64_t spdk_vtophys(const void *buf, uint64_t *size);
bool spdk_iommu_is_enabled(void);

/* Whole pages of 2 MiB. */
int spdk_mem_register(void *vaddr, size_t len);
int spdk_mem_unregister(void *vaddr, size_t len);
int spdk_mem_reserve(void *vaddr, size_t len);
int32_t spdk_mem_get_numa_id(const void *buf, uint64_t *size);
int spdk_mem_get_fd_and_offset(void *vaddr, uint64_t *offset);

struct spdk_mem_map;

enum spdk_mem_map_notify_action {
	SPDK_MEM_MAP_NOTIFY_REGISTER,
	SPDK_MEM_MAP_NOTIFY_UNREGISTER,
};

typedef int (*spdk_mem_map_notify_cb)(void *cb_ctx, struct spdk_mem_map *map, enum spdk_mem_map_notify_action action,
	void *vaddr, size_t size);
typedef int (*spdk_mem_map_contiguous_translations)(uint64_t addr_1, uint64_t addr_2);

struct spdk_mem_map_ops {
	spdk_mem_map_notify_cb notify_cb;
	spdk_mem_map_contiguous_translations are_contiguous;
};

struct spdk_mem_map *spdk_mem_map_alloc(uint64_t default_translation, const struct spdk_mem_map_ops *ops,
	void *cb_ctx);
void spdk_mem_map_free(struct spdk_mem_map **pmap);
int spdk_mem_map_set_translation(struct spdk_mem_map *map, uint64_t vaddr, uint64_t size, uint64_t translation);
int spdk_mem_map_clear_translation(struct spdk_mem_map *map, uint64_t vaddr, uint64_t size);
uint64_t spdk_mem_map_translate(const struct spdk_mem_map *map, uint64_t vaddr, uint64_t *size);

/* Named memory zones. */

#define SPDK_MAX_MEMZONE_NAME_LEN 32
#define SPDK_MEMZONE_NO_IOVA_CONTIG 0x00100000

void *spdk_memzone_reserve(const char *name, size_t len, int numa_id, unsigned flags);
void *spdk_memzone_reserve_aligned(const char *name, size_t len, int numa_id, unsigned flags, unsigned align);
void *spdk_memzone_lookup(const char *name);
int spdk_memzone_free(const char *name);
void spdk_memzone_dump(FILE *f);

/* Pools of elements of one size. */

#define SPDK_MAX_MEMPOOL_NAME_LEN 29
#define SPDK_MEMPOOL_DEFAULT_CACHE_SIZE SIZE_MAX

struct spdk_mempool;

typedef void(spdk_mempool_obj_cb_t)(struct spdk_mempool *mp, void *opaque, void *obj, unsigned obj_idx);
typedef void(spdk_mempool_mem_cb_t)(struct spdk_mempool *mp, void *opaque, void *addr, uint64_t iova, size_t len,
	unsigned mem_idx);

struct spdk_mempool *spdk_mempool_create(const char *name, size_t count, size_t ele_size, size_t cache_size,
	int numa_id);
struct spdk_mempool *spdk_mempool_create_ctor(const char *name, size_t count, size_t ele_size, size_t cache_size,
	int numa_id, spdk_mempool_obj_cb_t *obj_init, void *obj_init_arg);
struct spdk_mempool *spdk_mempool_lookup(const char *name);
char *spdk_mempool_get_name(struct spdk_mempool *mp);
void spdk_mempool_free(struct spdk_mempool *mp);
void *spdk_mempool_get(struct spdk_mempool *mp);
int spdk_mempool_get_bulk(struct spdk_mempool *mp, void **ele_arr, size_t count);
void spdk_mempool_put(struct spdk_mempool *mp, void *ele);
void spdk_mempool_put_bulk(struct spdk_mempool *mp, void **ele_arr, size_t count);
size_t spdk_mempool_count(const struct spdk_mempool *pool);
uint32_t spdk_mempool_obj_iter(struct spdk_mempool *mp, spdk_mempool_obj_cb_t obj_cb, void *obj_cb_arg);
uint32_t spdk_mempool_mem_iter(struct spdk_mempool *mp, spdk_mempool_mem_cb_t mem_cb, void *mem_cb_arg);

/* Rings of pointers between threads. */

struct spdk_ring;

enum spdk_ring_type {
	SPDK_RING_TYPE_SP_SC,
	SPDK_RING_TYPE_MP_SC,
	SPDK_RING_TYPE_MP_MC,
};

struct spdk_ring *spdk_ring_create(enum spdk_ring_type type, size_t count, int numa_id);
void spdk_ring_free(struct spdk_ring *ring);
size_t spdk_ring_count(struct spdk_ring *ring);
size_t spdk_ring_enqueue(struct spdk_ring *ring, void **objs, size_t count, size_t *free_space);
size_t spdk_ring_dequeue(struct spdk_ring *ring, void **objs, size_t count);

/* Cores. An iteration ends at UINT32_MAX. */

typedef int (*thread_start_fn)(void *);

uint32_t spdk_env_get_core_count(void);
uint32_t spdk_env_get_current_core(void);
uint32_t spdk_env_get_main_core(void);
uint32_t spdk_env_get_first_core(void);
uint32_t spdk_env_get_last_core(void);
uint32_t spdk_env_get_next_core(uint32_t prev_core);
int32_t spdk_env_get_numa_id(uint32_t core);
int32_t spdk_env_get_first_numa_id(void);
int32_t spdk_env_get_last_numa_id(void);
int32_t spdk_env_get_next_numa_id(int32_t prev_numa_id);

#define SPDK_ENV_FOREACH_CORE(i) \
	for (i = spdk_env_get_first_core(); i < UINT32_MAX; i = spdk_env_get_next_core(i))
#define SPDK_ENV_FOREACH_NUMA_ID(i) \
	for (i = spdk_env_get_first_numa_id(); i < INT32_MAX; i = spdk_env_get_next_numa_id(i))

struct spdk_cpuset;

void spdk_env_get_cpuset(struct spdk_cpuset *cpuset);
bool spdk_env_core_get_smt_cpuset(struct spdk_cpuset *cpuset, uint32_t core);

int spdk_env_thread_launch_pinned(uint32_t core, thread_start_fn fn, void *arg);
void spdk_env_thread_wait_all(void);
void spdk_unaffinitize_thread(void);
void *spdk_call_unaffinitized(void *cb(void *arg), void *arg);
int spdk_get_tid(void);

/* Time. */

uint64_t spdk_get_ticks(void);
uint64_t spdk_get_ticks_hz(void);
void spdk_delay_us(unsigned int us);
void spdk_pause(void);

/* PCI. */

struct spdk_pci_id {
	uint32_t class_id;
	uint16_t vendor_id;
	uint16_t device_id;
	uint16_t subvendor_id;
	uint16_t subdevice_id;
};

struct spdk_pci_driver;

struct spdk_pci_device {
	struct spdk_pci_device *parent;
	void *dev_handle;
	struct spdk_pci_addr addr;
	struct spdk_pci_id id;
	__extension__ union {
		int numa_id;
		int socket_id;
	};
	const char *type;

	int (*map_bar)(struct spdk_pci_device *dev, uint32_t bar, void **mapped_addr, uint64_t *phys_addr, uint64_t *size);
	int (*unmap_bar)(struct spdk_pci_device *dev, uint32_t bar, void *addr);
	int (*cfg_read)(struct spdk_pci_device *dev, void *value, uint32_t len, uint32_t offset);
	int (*cfg_write)(struct spdk_pci_device *dev, void *value, uint32_t len, uint32_t offset);

	struct _spdk_pci_device_internal {
		struct spdk_pci_driver *driver;
		bool attached;
		int claim_fd;
		bool pending_removal;
		bool removed;
		TAILQ_ENTRY(spdk_pci_device) tailq;
	} internal;
};

/* Returns 0 to take the device, a positive number to continue without taking it, and a negative number to stop. */
typedef int (*spdk_pci_enum_cb)(void *enum_ctx, struct spdk_pci_device *dev);

#define SPDK_PCI_DRIVER_NEED_MAPPING 0x0001
#define SPDK_PCI_DRIVER_WC_ACTIVATE 0x0002

void spdk_pci_driver_register(const char *name, struct spdk_pci_id *id_table, uint32_t flags);

#define SPDK_PCI_DEVICE(vend, dev) \
	.class_id = SPDK_PCI_CLASS_ANY_ID, .vendor_id = (vend), .device_id = (dev), \
	.subvendor_id = SPDK_PCI_ANY_ID, .subdevice_id = SPDK_PCI_ANY_ID

#define SPDK_PCI_DRIVER_REGISTER(name, id_table, flags) \
	__attribute__((constructor)) static void spdk_pci_driver_register_##name##_(void) \
	{ \
		spdk_pci_driver_register(#name, id_table, flags); \
	}

struct spdk_pci_driver *spdk_pci_get_driver(const char *name);
struct spdk_pci_driver *spdk_pci_ioat_get_driver(void);

int spdk_pci_enumerate(struct spdk_pci_driver *driver, spdk_pci_enum_cb enum_cb, void *enum_ctx);
void spdk_pci_for_each_device(void *ctx, void (*fn)(void *ctx, struct spdk_pci_device *dev));
int spdk_pci_device_attach(struct spdk_pci_driver *driver, spdk_pci_enum_cb enum_cb, void *enum_ctx,
	struct spdk_pci_addr *pci_address);
void spdk_pci_device_detach(struct spdk_pci_device *device);
int spdk_pci_device_allow(struct spdk_pci_addr *pci_addr);
int spdk_pci_device_claim(struct spdk_pci_device *dev);
void spdk_pci_device_unclaim(struct spdk_pci_device *dev);
bool spdk_pci_device_is_removed(struct spdk_pci_device *dev);

int spdk_pci_device_map_bar(struct spdk_pci_device *dev, uint32_t bar, void **mapped_addr, uint64_t *phys_addr,
	uint64_t *size);
int spdk_pci_device_unmap_bar(struct spdk_pci_device *dev, uint32_t bar, void *mapped_addr);

int spdk_pci_device_cfg_read(struct spdk_pci_device *dev, void *buf, uint32_t len, uint32_t offset);
int spdk_pci_device_cfg_write(struct spdk_pci_device *dev, void *buf, uint32_t len, uint32_t offset);
int spdk_pci_device_cfg_read8(struct spdk_pci_device *dev, uint8_t *value, uint32_t offset);
int spdk_pci_device_cfg_write8(struct spdk_pci_device *dev, uint8_t value, uint32_t offset);
int spdk_pci_device_cfg_read16(struct spdk_pci_device *dev, uint16_t *value, uint32_t offset);
int spdk_pci_device_cfg_write16(struct spdk_pci_device *dev, uint16_t value, uint32_t offset);
int spdk_pci_device_cfg_read32(struct spdk_pci_device *dev, uint32_t *value, uint32_t offset);
int spdk_pci_device_cfg_write32(struct spdk_pci_device *dev, uint32_t value, uint32_t offset);

uint32_t spdk_pci_device_get_domain(struct spdk_pci_device *dev);
uint8_t spdk_pci_device_get_bus(struct spdk_pci_device *dev);
uint8_t spdk_pci_device_get_dev(struct spdk_pci_device *dev);
uint8_t spdk_pci_device_get_func(struct spdk_pci_device *dev);
struct spdk_pci_addr spdk_pci_device_get_addr(struct spdk_pci_device *dev);
uint16_t spdk_pci_device_get_vendor_id(struct spdk_pci_device *dev);
uint16_t spdk_pci_device_get_device_id(struct spdk_pci_device *dev);
uint16_t spdk_pci_device_get_subvendor_id(struct spdk_pci_device *dev);
uint16_t spdk_pci_device_get_subdevice_id(struct spdk_pci_device *dev);
struct spdk_pci_id spdk_pci_device_get_id(struct spdk_pci_device *dev);
int spdk_pci_device_get_numa_id(struct spdk_pci_device *dev);
int spdk_pci_device_get_serial_number(struct spdk_pci_device *dev, char *sn, size_t len);
const char *spdk_pci_device_get_type(const struct spdk_pci_device *dev);

int spdk_pci_addr_compare(const struct spdk_pci_addr *a1, const struct spdk_pci_addr *a2);
int spdk_pci_addr_parse(struct spdk_pci_addr *addr, const char *bdf);
int spdk_pci_addr_fmt(char *bdf, size_t sz, const struct spdk_pci_addr *addr);

/* I/OAT programs poll, so the stand-in has no interrupts. These calls return -ENOTSUP. */
int spdk_pci_device_enable_interrupt(struct spdk_pci_device *dev);
int spdk_pci_device_disable_interrupt(struct spdk_pci_device *dev);
int spdk_pci_device_get_interrupt_efd(struct spdk_pci_device *dev);

/* Names before 24.09. */
uint32_t spdk_env_get_socket_id(uint32_t core);
int spdk_pci_device_get_socket_id(struct spdk_pci_device *dev);

#ifdef __cplusplus
}
#endif

#endif
