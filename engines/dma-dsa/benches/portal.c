/* A work queue for `instructions.rs`, as a preloaded library. A store to a portal raises a signal: SIGILL under valgrind, which
 * does not know MOVDIR64B, otherwise SIGBUS, because the file is empty. The handler runs the descriptor before it returns. Like
 * the device, it checks operation, flags and length, copies, and writes the record if the descriptor asks for it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "dsa.h"

static void
end(const struct descriptor *descriptor, uint8_t status)
{
	if ((descriptor->command & RECORD_VALID) && (status != SUCCESS || (descriptor->command & REPORT))) {
		struct record *record = (struct record *)descriptor->record;

		record->done = 0;
		record->status = status;
	}
}

static uint8_t
move(const struct descriptor *descriptor)
{
	if (descriptor->command >> 24 != MOVE_OP) {
		return 0x10;
	}
	if (descriptor->command & 0xffffff & ~COMMON_FLAGS) {
		return 0x11;
	}
	if (descriptor->reserved != 0 || (descriptor->extra[0] | descriptor->extra[1] | descriptor->extra[2]) != 0) {
		return 0x12;
	}
	if (descriptor->len == 0 || descriptor->len > 1u << 31) {
		return 0x13;
	}
	memmove((void *)descriptor->dst, (void *)descriptor->src, descriptor->len);
	return SUCCESS;
}

static void
store(int signal, siginfo_t *info, void *context)
{
	static const uint8_t movdir64b[] = {0x66, 0x0f, 0x38, 0xf8, 0x02}; /* movdir64b rax, [rdx] */
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const struct descriptor *descriptor = (struct descriptor *)registers[REG_RDX];

	(void)signal;
	(void)info;
	if (memcmp((void *)registers[REG_RIP], movdir64b, sizeof(movdir64b)) != 0) {
		abort();
	}
	registers[REG_RIP] += sizeof(movdir64b);
	if (descriptor->command >> 24 == BATCH_OP) {
		const struct descriptor *list = (struct descriptor *)descriptor->src;
		uint8_t status = SUCCESS;

		for (uint32_t i = 0; i < descriptor->len; i++) {
			uint8_t one = move(&list[i]);

			end(&list[i], one);
			if (one != SUCCESS) {
				status = 5;
			}
		}
		end(descriptor, status);
	} else {
		end(descriptor, move(descriptor));
	}
}

__attribute__((constructor)) static void
start(void)
{
	struct sigaction action = {.sa_sigaction = store, .sa_flags = SA_SIGINFO};

	sigaction(SIGILL, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
}
