/* Copies in batches of 32, as C programs do. `instructions.rs` compares the instructions of this program with the engine's. The argument is the number of batches. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spdk/env.h>
#include <spdk/ioat.h>

enum { BATCH = 32, LEN = 64 };

static struct spdk_ioat_chan *channel;

static bool
probe(void *ctx, struct spdk_pci_device *function)
{
	(void)ctx;
	(void)function;
	return channel == NULL;
}

static void
attach(void *ctx, struct spdk_pci_device *function, struct spdk_ioat_chan *attached)
{
	(void)ctx;
	(void)function;
	channel = attached;
}

static void
done(void *arg)
{
	++*(uint64_t *)arg;
}

int
main(int argc, char **argv)
{
	long batches = argc > 1 ? atol(argv[1]) : 1;
	struct spdk_env_opts opts;
	uint8_t *src, *dst;
	uint64_t completed = 0;

	memset(&opts, 0, sizeof(opts));
	opts.opts_size = sizeof(opts);
	spdk_env_opts_init(&opts);
	opts.no_huge = true;
	opts.mem_size = 512;
	if (spdk_env_init(&opts) < 0 || spdk_ioat_probe(NULL, probe, attach) < 0 || channel == NULL) {
		fprintf(stderr, "no channel\n");
		return 1;
	}
	src = spdk_dma_zmalloc(BATCH * LEN, 4096, NULL);
	dst = spdk_dma_zmalloc(BATCH * LEN, 4096, NULL);
	for (long b = 0; b < batches; b++) {
		uint64_t until = completed + BATCH;

		for (int i = 0; i < BATCH; i++) {
			if (spdk_ioat_build_copy(channel, &completed, done, dst + i * LEN, src + i * LEN, LEN) != 0) {
				return 1;
			}
		}
		spdk_ioat_flush(channel);
		while (completed < until) {
			if (spdk_ioat_process_events(channel) < 0) {
				return 1;
			}
		}
	}
	return 0;
}
