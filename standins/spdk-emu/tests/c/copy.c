/* Copies and fills on several channels, with one thread for each core. */
#include "spdk/stdinc.h"

#include "spdk/env.h"
#include "spdk/ioat.h"

#include "check.h"

enum { SIZE = 3 << 20, ROUNDS = 20, MOST = 16 };

static struct spdk_ioat_chan *channels[MOST];
static unsigned found;

struct count {
	int ended;
};

static bool on_probe(void *ctx, struct spdk_pci_device *device)
{
	struct spdk_pci_addr addr = spdk_pci_device_get_addr(device);
	char text[32];

	(void)ctx;
	CHECK(spdk_pci_addr_fmt(text, sizeof(text), &addr) == 0);
	CHECK(spdk_pci_device_get_vendor_id(device) == SPDK_PCI_VID_INTEL && strcmp(device->type, "pci") == 0);
	printf("%s device %04x\n", text, spdk_pci_device_get_device_id(device));
	return true;
}

static void on_attach(void *ctx, struct spdk_pci_device *device, struct spdk_ioat_chan *channel)
{
	(void)ctx;
	(void)device;
	CHECK(found < MOST);
	channels[found++] = channel;
}

static void on_end(void *arg)
{
	((struct count *)arg)->ended++;
}

static int work(void *arg)
{
	struct spdk_ioat_chan *channel = *(struct spdk_ioat_chan **)arg;
	unsigned char *src = (unsigned char *)spdk_dma_malloc(SIZE, 64, NULL), *dst = (unsigned char *)spdk_dma_zmalloc(SIZE, 64, NULL);
	struct count count = { 0 };
	int round, i;

	CHECK(src != NULL && dst != NULL);
	for (round = 0; round < ROUNDS; round++) {
		int len = SIZE - 1000 * round;

		for (i = 0; i < SIZE; i++)
			src[i] = (unsigned char)(i * 7 + round);
		memset(dst, 0xee, SIZE);
		CHECK(spdk_ioat_build_copy(channel, &count, on_end, dst, src, (uint64_t)len) == 0);
		CHECK(spdk_ioat_process_events(channel) == 0 && dst[0] == 0xee);
		spdk_ioat_flush(channel);
		while (count.ended < 3 * round + 1)
			CHECK(spdk_ioat_process_events(channel) >= 0);
		CHECK(memcmp(src, dst, (size_t)len) == 0);
		for (i = len; i < SIZE; i++)
			CHECK(dst[i] == 0xee);
		CHECK(spdk_ioat_submit_fill(channel, &count, on_end, dst, 0x1122334455667788, 4096) == 0);
		while (count.ended < 3 * round + 2)
			CHECK(spdk_ioat_process_events(channel) >= 0);
		for (i = 0; i < 4096; i += 8)
			CHECK(*(uint64_t *)(void *)(dst + i) == 0x1122334455667788);
		CHECK(dst[4096] == src[4096]);
		/* Overlapping ranges: bytes are copied in any order, but no byte outside of the destination changes. */
		CHECK(spdk_ioat_submit_copy(channel, &count, on_end, dst + 4096, dst + 4100, 2000) == 0);
		while (count.ended < 3 * round + 3)
			CHECK(spdk_ioat_process_events(channel) >= 0);
		CHECK(memcmp(dst + 6096, src + 6096, 1000) == 0);
	}
	spdk_dma_free(src);
	spdk_dma_free(dst);
	return 0;
}

int main(void)
{
	struct spdk_env_opts opts;
	uint32_t core;
	unsigned next = 1;

	memset(&opts, 0, sizeof(opts));
	opts.opts_size = sizeof(opts);
	spdk_env_opts_init(&opts);
	opts.name = "copy";
	opts.core_mask = "0x7";
	CHECK(spdk_env_init(&opts) == 0);
	CHECK(spdk_ioat_probe(NULL, on_probe, on_attach) == 0);
	CHECK(found >= 3);
	SPDK_ENV_FOREACH_CORE(core) {
		if (core != spdk_env_get_current_core())
			CHECK(spdk_env_thread_launch_pinned(core, work, &channels[next++]) == 0);
	}
	work(&channels[0]);
	spdk_env_thread_wait_all();
	while (found > 0)
		spdk_ioat_detach(channels[--found]);
	spdk_env_fini();
	puts("copy: all as it should be");
	return 0;
}
