/* spdk/ioat_spec.h: The registers and descriptors of an I/OAT channel.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_IOAT_SPEC_H
#define SPDK_IOAT_SPEC_H

#include "spdk/assert.h"
#include "spdk/stdinc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Configuration space. */
#define SPDK_IOAT_PCI_CHANERR_INT_OFFSET 0x180

#define SPDK_IOAT_INTRCTRL_MASTER_INT_EN 0x01

#define SPDK_IOAT_VER_3_0 0x30
#define SPDK_IOAT_VER_3_3 0x33

#define SPDK_IOAT_CHANCTRL_INT_REARM 0x0001
#define SPDK_IOAT_CHANCTRL_ERR_COMPLETION_EN 0x0004
#define SPDK_IOAT_CHANCTRL_ANY_ERR_ABORT_EN 0x0008
#define SPDK_IOAT_CHANCTRL_ERR_INT_EN 0x0010
#define SPDK_IOAT_CHANCTRL_DESCRIPTOR_ADDR_SNOOP_CONTROL 0x0020
#define SPDK_IOAT_CHANCTRL_CHANNEL_IN_USE 0x0100
#define SPDK_IOAT_CHANCTRL_COMPL_DCA_EN 0x0200
#define SPDK_IOAT_CHANCTRL_CHANNEL_PRIORITY_MASK 0xF000

#define SPDK_IOAT_DMACAP_PB (1 << 0)
#define SPDK_IOAT_DMACAP_DCA (1 << 4)
#define SPDK_IOAT_DMACAP_BFILL (1 << 6)
#define SPDK_IOAT_DMACAP_XOR (1 << 8)
#define SPDK_IOAT_DMACAP_PQ (1 << 9)
#define SPDK_IOAT_DMACAP_DMA_DIF (1 << 10)

#define SPDK_IOAT_CHANCMD_SUSPEND 0x04
#define SPDK_IOAT_CHANCMD_RESET 0x20

#define SPDK_IOAT_CHANSTS_STATUS 0x7ULL
#define SPDK_IOAT_CHANSTS_ACTIVE 0x0
#define SPDK_IOAT_CHANSTS_IDLE 0x1
#define SPDK_IOAT_CHANSTS_SUSPENDED 0x2
#define SPDK_IOAT_CHANSTS_HALTED 0x3
#define SPDK_IOAT_CHANSTS_ARMED 0x4
#define SPDK_IOAT_CHANSTS_UNAFFILIATED_ERROR 0x8ULL
#define SPDK_IOAT_CHANSTS_SOFT_ERROR 0x10ULL
#define SPDK_IOAT_CHANSTS_COMPLETED_DESCRIPTOR_MASK (~0x3FULL)

#define SPDK_IOAT_CHANCMP_ALIGN 8

/* BAR 0. Each function has one channel, whose registers begin at 0x80. */
struct spdk_ioat_registers {
	uint8_t chancnt;
	uint8_t xfercap;
	uint8_t genctrl;
	uint8_t intrctrl;
	uint32_t attnstatus;
	uint8_t cbver; /* 0x08 */
	uint8_t reserved4[3];
	uint16_t intrdelay; /* 0x0c */
	uint16_t cs_status;
	uint32_t dmacapability; /* 0x10 */
	uint8_t reserved5[0x6C];
	uint16_t chanctrl; /* 0x80 */
	uint8_t reserved6[2];
	uint8_t chancmd; /* 0x84 */
	uint8_t reserved3[1];
	uint16_t dmacount; /* 0x86 */
	uint64_t chansts; /* 0x88 */
	uint64_t chainaddr; /* 0x90 */
	uint64_t chancmp; /* 0x98 */
	uint8_t reserved2[8];
	uint32_t chanerr; /* 0xa8 */
	uint32_t chanerrmask; /* 0xac */
} __attribute__((packed)) __attribute__((aligned));

SPDK_STATIC_ASSERT(offsetof(struct spdk_ioat_registers, cbver) == 0x08, "cbver");
SPDK_STATIC_ASSERT(offsetof(struct spdk_ioat_registers, dmacapability) == 0x10, "dmacapability");
SPDK_STATIC_ASSERT(offsetof(struct spdk_ioat_registers, chanctrl) == 0x80, "chanctrl");
SPDK_STATIC_ASSERT(offsetof(struct spdk_ioat_registers, dmacount) == 0x86, "dmacount");
SPDK_STATIC_ASSERT(offsetof(struct spdk_ioat_registers, chansts) == 0x88, "chansts");
SPDK_STATIC_ASSERT(offsetof(struct spdk_ioat_registers, chanerr) == 0xa8, "chanerr");

/* Operations, in the top byte of a descriptor's control word. */
#define SPDK_IOAT_OP_COPY 0x00
#define SPDK_IOAT_OP_FILL 0x01
#define SPDK_IOAT_OP_XOR 0x87
#define SPDK_IOAT_OP_XOR_VAL 0x88
#define SPDK_IOAT_OP_PQ 0x89
#define SPDK_IOAT_OP_PQ_VAL 0x8a
#define SPDK_IOAT_OP_PQ_UP 0x8b

/* Descriptors, of 64 bytes. The fields that all kinds have in common. */
struct spdk_ioat_generic_hw_desc {
	uint32_t size;
	union {
		uint32_t control_raw;
		struct {
			uint32_t int_enable : 1;
			uint32_t src_snoop_disable : 1;
			uint32_t dest_snoop_disable : 1;
			uint32_t completion_update : 1;
			uint32_t fence : 1;
			uint32_t reserved2 : 1;
			uint32_t src_page_break : 1;
			uint32_t dest_page_break : 1;
			uint32_t bundle : 1;
			uint32_t dest_dca : 1;
			uint32_t hint : 1;
			uint32_t reserved : 13;
			uint32_t op : 8;
		} control;
	} u;
	uint64_t src_addr;
	uint64_t dest_addr;
	uint64_t next;
	uint64_t op_specific[4];
};

struct spdk_ioat_dma_hw_desc {
	uint32_t size;
	union {
		uint32_t control_raw;
		struct {
			uint32_t int_enable : 1;
			uint32_t src_snoop_disable : 1;
			uint32_t dest_snoop_disable : 1;
			uint32_t completion_update : 1;
			uint32_t fence : 1;
			uint32_t null : 1;
			uint32_t src_page_break : 1;
			uint32_t dest_page_break : 1;
			uint32_t bundle : 1;
			uint32_t dest_dca : 1;
			uint32_t hint : 1;
			uint32_t reserved : 13;
			uint32_t op : 8;
		} control;
	} u;
	uint64_t src_addr;
	uint64_t dest_addr;
	uint64_t next;
	uint64_t reserved;
	uint64_t reserved2;
	uint64_t user1;
	uint64_t user2;
};

struct spdk_ioat_fill_hw_desc {
	uint32_t size;
	union {
		uint32_t control_raw;
		struct {
			uint32_t int_enable : 1;
			uint32_t reserved : 1;
			uint32_t dest_snoop_disable : 1;
			uint32_t completion_update : 1;
			uint32_t fence : 1;
			uint32_t reserved2 : 2;
			uint32_t dest_page_break : 1;
			uint32_t bundle : 1;
			uint32_t reserved3 : 15;
			uint32_t op : 8;
		} control;
	} u;
	uint64_t src_data;
	uint64_t dest_addr;
	uint64_t next;
	uint64_t reserved;
	uint64_t next_dest_addr;
	uint64_t user1;
	uint64_t user2;
};

struct spdk_ioat_raw_hw_desc {
	uint64_t field[8];
};

union spdk_ioat_hw_desc {
	struct spdk_ioat_raw_hw_desc raw;
	struct spdk_ioat_generic_hw_desc generic;
	struct spdk_ioat_dma_hw_desc dma;
	struct spdk_ioat_fill_hw_desc fill;
};
SPDK_STATIC_ASSERT(sizeof(union spdk_ioat_hw_desc) == 64, "size of spdk_ioat_hw_desc");

#ifdef __cplusplus
}
#endif

#endif
