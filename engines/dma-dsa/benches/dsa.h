/* Formats of DSA: a descriptor, a completion record, and the codes that the programs here need. */
#include <stdint.h>

enum { BATCH_OP = 1, MOVE_OP = 3, COMMON_FLAGS = 0xff2f, RECORD_VALID = 4, REPORT = 8, CACHE = 0x100, SUCCESS = 1 };

struct record {
	volatile uint8_t status;
	uint8_t result;
	uint16_t reserved;
	uint32_t done;
	uint64_t fault, value, more;
} __attribute__((aligned(32)));

struct descriptor {
	uint32_t pasid, command;
	uint64_t record, src, dst;
	uint32_t len;
	uint16_t interrupt, reserved;
	uint64_t extra[3];
} __attribute__((aligned(64)));
