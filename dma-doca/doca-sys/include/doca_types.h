/* doca_types.h: Types that several headers share.
 *
 * Written for this project from the names, types and numbers of the public DOCA 3.0 reference
 * (https://docs.nvidia.com/doca/), which describes the calls. doca-emu states where the stand-in differs. */
#ifndef DMA_DOCA_TYPES_H
#define DMA_DOCA_TYPES_H

#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef __be16 doca_be16_t;
typedef __be32 doca_be32_t;
typedef __be64 doca_be64_t;

/* User data, which the program attaches to an object and gets back in callbacks. */
union doca_data {
	void *ptr;
	uint64_t u64;
};

/* An element of a list of memory ranges. */
struct doca_gather_list {
	void *addr;
	uint64_t len;
	struct doca_gather_list *next;
};

/* File descriptors, on Linux. */
typedef int doca_event_handle_t;
typedef doca_event_handle_t doca_notification_handle_t;
#define doca_event_invalid_handle (-1)
#define doca_notification_invalid_handle (-1)

#define DOCA_GID_BYTE_LENGTH 16

enum doca_access_flag {
	DOCA_ACCESS_FLAG_LOCAL_READ_ONLY = 0,
	DOCA_ACCESS_FLAG_LOCAL_READ_WRITE = 1,
	DOCA_ACCESS_FLAG_RDMA_READ = 2,
	DOCA_ACCESS_FLAG_RDMA_WRITE = 4,
	DOCA_ACCESS_FLAG_RDMA_ATOMIC = 8,
	DOCA_ACCESS_FLAG_PCI_READ_ONLY = 16,
	DOCA_ACCESS_FLAG_PCI_READ_WRITE = 32,
	DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING = 64,
};

enum doca_pci_func_type {
	DOCA_PCI_FUNC_TYPE_PF = 0,
	DOCA_PCI_FUNC_TYPE_VF = 1,
	DOCA_PCI_FUNC_TYPE_SF = 2,
};

enum doca_gpu_mem_type {
	DOCA_GPU_MEM_TYPE_GPU = 0,
	DOCA_GPU_MEM_TYPE_GPU_CPU = 1,
	DOCA_GPU_MEM_TYPE_CPU_GPU = 2,
};

enum doca_eth_wait_on_time_type {
	DOCA_ETH_WAIT_ON_TIME_TYPE_NONE = 0,
	DOCA_ETH_WAIT_ON_TIME_TYPE_NATIVE = 1,
	DOCA_ETH_WAIT_ON_TIME_TYPE_DPDK = 2,
};

enum doca_mtu_size {
	DOCA_MTU_SIZE_256_BYTES = 0,
	DOCA_MTU_SIZE_512_BYTES = 1,
	DOCA_MTU_SIZE_1K_BYTES = 2,
	DOCA_MTU_SIZE_2K_BYTES = 3,
	DOCA_MTU_SIZE_4K_BYTES = 4,
	DOCA_MTU_SIZE_RAW_ETHERNET = 5,
};

#ifdef __cplusplus
}
#endif

#endif
