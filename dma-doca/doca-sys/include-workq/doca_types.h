/* doca_types.h: types that several headers share.
 *
 * Written for this project from the names, types and numbers of DOCA 1.5 and 2.2, as public code uses them. Declarations
 * that only one generation has are between #ifdef with its macro and #endif. An installed tree has only the declarations of
 * its own generation, without these marks. */
#ifndef DMA_DOCA_WORKQ_TYPES_H
#define DMA_DOCA_WORKQ_TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A file descriptor. */
typedef int doca_event_handle_t;
#define doca_event_invalid_handle (-1)

/* User data, which the program attaches to an object and gets back in callbacks. */
union doca_data {
	void *ptr;
	uint64_t u64;
};

#ifdef DOCA_WORKQ_1_5
/* Rights of peers in a network. A program cannot set the rights of a map: its devices may read and write, and so may the
 * DPU's after an export. */
enum doca_access_flags {
	DOCA_ACCESS_LOCAL_READ = 0,
	DOCA_ACCESS_LOCAL_WRITE = 1,
	DOCA_ACCESS_REMOTE_WRITE = 1 << 1,
	DOCA_ACCESS_REMOTE_READ = 1 << 2,
	DOCA_ACCESS_REMOTE_ATOMIC = 1 << 3,
};

/* A PCI address without its domain. */
struct doca_pci_bdf {
#define PCI_FUNCTION_MAX_VALUE 8
#define PCI_DEVICE_MAX_VALUE 32
#define PCI_BUS_MAX_VALUE 256
	union {
		uint16_t raw;
		__extension__ struct {
			uint16_t bus : 8;
			uint16_t device : 5;
			uint16_t function : 3;
		};
	};
};
#endif

#ifndef DOCA_WORKQ_1_5
/* Rights of a map. */
enum doca_access_flags {
	DOCA_ACCESS_LOCAL_READ_ONLY = 0,
	DOCA_ACCESS_LOCAL_READ_WRITE = 1 << 0,
	DOCA_ACCESS_RDMA_READ = 1 << 1,
	DOCA_ACCESS_RDMA_WRITE = 1 << 2,
	DOCA_ACCESS_RDMA_ATOMIC = 1 << 3,
	DOCA_ACCESS_DPU_READ_ONLY = 1 << 4,
	DOCA_ACCESS_DPU_READ_WRITE = 1 << 5,
};
#endif

enum doca_pci_func_type {
	DOCA_PCI_FUNC_PF = 0,
	DOCA_PCI_FUNC_VF = 1,
	DOCA_PCI_FUNC_SF = 2,
};

#ifdef __cplusplus
}
#endif

#endif
