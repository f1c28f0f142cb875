/* Prints the results of the set-up and of a probe, and the number of channels: `INIT PROBE CHANNELS`. */
#include "spdk/stdinc.h"

#include "spdk/env.h"
#include "spdk/ioat.h"

static int found;

static bool on_probe(void *ctx, struct spdk_pci_device *device)
{
	(void)ctx;
	(void)device;
	return true;
}

static void on_attach(void *ctx, struct spdk_pci_device *device, struct spdk_ioat_chan *channel)
{
	(void)ctx;
	(void)device;
	(void)channel;
	found++;
}

int main(int argc, char **argv)
{
	struct spdk_env_opts opts;
	struct spdk_pci_addr addr;
	int init;

	opts.opts_size = sizeof(opts);
	spdk_env_opts_init(&opts);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "no_huge") == 0)
			opts.no_huge = true, opts.mem_size = 64;
		else if (strcmp(argv[i], "no_pci") == 0)
			opts.no_pci = true;
		else if (spdk_pci_addr_parse(&addr, argv[i]) == 0)
			opts.pci_allowed = &addr, opts.num_pci_addr = 1;
		else
			opts.core_mask = argv[i];
	}
	init = spdk_env_init(&opts);
	printf("%d %d ", init, spdk_ioat_probe(NULL, on_probe, on_attach));
	printf("%d\n", found);
	return 0;
}
