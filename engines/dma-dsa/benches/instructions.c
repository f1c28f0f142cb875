/* A C program that copies in batches of 32 through the portal of a work queue, and checks the end of each copy.
 * `instructions.rs` compares the engine with it. Its arguments are the file of the work queue, the number of batches, and the
 * choice between a record of each descriptor and one record of the batch. */
#include <fcntl.h>
#include <immintrin.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "dsa.h"

enum { BATCH = 32, LEN = 64 };

/* The completion of a copy. */
struct ended {
	uint64_t id;
	uint8_t status;
};

static struct descriptor list[BATCH], batch;
static struct record records[BATCH], of_batch;
static uint64_t ids[BATCH];

static void
submit(void *portal)
{
	batch.command = (uint32_t)BATCH_OP << 24 | RECORD_VALID | REPORT;
	batch.record = (uint64_t)&of_batch;
	batch.src = (uint64_t)list;
	batch.len = BATCH;
	of_batch.status = 0;
	_mm_sfence();
	__asm__ volatile("movdir64b (%%rdx), %%rax" : : "a"(portal), "d"(&batch) : "memory");
}

/* Returns the number of copies that ended, from the given one on. */
static int __attribute__((noinline))
poll(struct ended *ended, int from, int all)
{
	int n = 0;

	if (!all && of_batch.status == SUCCESS) {
		for (; from + n < BATCH; n++) {
			ended[n].id = ids[from + n];
			ended[n].status = SUCCESS;
		}
		return n;
	}
	for (; from + n < BATCH && records[from + n].status != 0; n++) {
		ended[n].id = ids[from + n];
		ended[n].status = records[from + n].status;
	}
	if (n == 0) {
		_mm_pause();
	}
	return n;
}

int
main(int argc, char **argv)
{
	long batches = argc > 2 ? atol(argv[2]) : 1;
	int all = argc > 3 && argv[3][0] == 'a';
	uint32_t command = (uint32_t)MOVE_OP << 24 | RECORD_VALID | CACHE | (all ? REPORT : 0);
	void *portal = mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, open(argv[1], O_RDWR), 0);
	char *src = calloc(BATCH, LEN), *dst = calloc(BATCH, LEN);
	struct ended ended[BATCH];

	if (portal == MAP_FAILED) {
		return 1;
	}
	for (long b = 0; b < batches; b++) {
		uint64_t last = b * BATCH + BATCH - 1;

		for (int i = 0; i < BATCH; i++) {
			struct descriptor *d = &list[i];

			records[i].status = 0;
			ids[i] = b * BATCH + i;
			d->command = command;
			d->record = (uint64_t)&records[i];
			d->src = (uint64_t)(src + i * LEN);
			d->dst = (uint64_t)(dst + i * LEN);
			d->len = LEN;
		}
		submit(portal);
		for (int done = 0; done < BATCH;) {
			done += poll(&ended[done], done, all);
		}
		for (int i = 0; i < BATCH; i++) {
			if (ended[i].status != SUCCESS) {
				return 1;
			}
		}
		if (ended[BATCH - 1].id != last) {
			return 1;
		}
	}
	return 0;
}
