/* Memory of the host, exported over PCI and copied by the DPU: two processes. */
#include <sys/wait.h>
#include <unistd.h>

#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#include "check.h"

enum { SIZE = 100000 };

struct talk {
	uint64_t addr;
	uint64_t len;
	uint64_t desc_len;
	uint8_t desc[4096];
};

static int ended;
static doca_error_t status;

static void on_end(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	ended++;
	status = doca_task_get_status(doca_dma_task_memcpy_as_task(task));
	doca_task_free(doca_dma_task_memcpy_as_task(task));
}

static void host(int to, int from)
{
	struct doca_dev *dev = open_device(HOST);
	struct doca_mmap *mmap;
	struct talk talk;
	const void *desc = NULL;
	size_t desc_len = 0;
	uint8_t *memory = (uint8_t *)malloc(SIZE);
	uint8_t can = 0;
	char word;

	CHECK(memory != NULL);
	for (int i = 0; i < SIZE; i++)
		memory[i] = (uint8_t)(i * 7);
	OK(doca_mmap_cap_is_export_pci_supported(doca_dev_as_devinfo(dev), &can));
	CHECK(can == 1);
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, memory, SIZE));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_PCI_READ_WRITE));
	OK(doca_mmap_add_dev(mmap, dev));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_export_pci(mmap, dev, &desc, &desc_len));
	OK(doca_mmap_start(mmap));
	OK(doca_mmap_export_pci(mmap, dev, &desc, &desc_len));
	memset(&talk, 0, sizeof(talk));
	CHECK(desc_len <= sizeof(talk.desc));
	talk.addr = (uint64_t)(uintptr_t)memory;
	talk.len = SIZE;
	talk.desc_len = desc_len;
	memcpy(talk.desc, desc, desc_len);
	CHECK(write(to, &talk, sizeof(talk)) == (ssize_t)sizeof(talk));

	/* The DPU has read all of the memory and written its first bytes. */
	CHECK(read(from, &word, 1) == 1);
	CHECK(memcmp(memory, "from the DPU", 13) == 0);
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_destroy(mmap));
	free(memory);
	CHECK(write(to, "x", 1) == 1);
	OK(doca_dev_close(dev));
}

static void dpu(int to, int from)
{
	static uint8_t local[SIZE];
	struct doca_dev *dev = open_device(DPU);
	struct doca_mmap *theirs, *ours, *none;
	struct doca_buf_inventory *inventory;
	struct doca_buf *remote, *here;
	struct doca_dma *dma;
	struct doca_dma_task_memcpy *task;
	struct doca_pe *pe;
	struct talk talk;
	union doca_data data;
	const void *desc;
	size_t desc_len;
	uint8_t *altered;
	char word;

	CHECK(read(from, &talk, sizeof(talk)) == (ssize_t)sizeof(talk));
	altered = talk.desc;
	altered[talk.desc_len / 2] ^= 0x40;
	CHECK(doca_mmap_create_from_export(NULL, talk.desc, talk.desc_len, dev, &none) != DOCA_SUCCESS);
	altered[talk.desc_len / 2] ^= 0x40;
	CHECK(doca_mmap_create_from_export(NULL, talk.desc, talk.desc_len - 1, dev, &none) != DOCA_SUCCESS);
	OK(doca_mmap_create_from_export(NULL, talk.desc, talk.desc_len, dev, &theirs));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_export_pci(theirs, dev, &desc, &desc_len));
	OK(doca_mmap_create(&ours));
	OK(doca_mmap_set_memrange(ours, local, sizeof(local)));
	OK(doca_mmap_add_dev(ours, dev));
	OK(doca_mmap_start(ours));
	OK(doca_buf_inventory_create(2, &inventory));
	OK(doca_buf_inventory_start(inventory));
	OK(doca_buf_inventory_buf_get_by_data(inventory, theirs, (void *)(uintptr_t)talk.addr, talk.len, &remote));
	OK(doca_buf_inventory_buf_get_by_addr(inventory, ours, local, sizeof(local), &here));
	OK(doca_pe_create(&pe));
	OK(doca_dma_create(dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, on_end, on_end, 1));
	OK(doca_pe_connect_ctx(pe, doca_dma_as_ctx(dma)));
	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	data.u64 = 0;
	for (int round = 0; round < 3; round++) {
		if (round == 1) {
			strcpy((char *)local, "from the DPU");
			OK(doca_buf_set_data(here, local, 13));
			OK(doca_buf_reset_data_len(remote));
			OK(doca_dma_task_memcpy_alloc_init(dma, here, remote, data, &task));
		} else {
			/* In the last round, the memory no longer exists. */
			OK(doca_buf_set_data(remote, (void *)(uintptr_t)talk.addr, talk.len));
			OK(doca_buf_reset_data_len(here));
			OK(doca_dma_task_memcpy_alloc_init(dma, remote, here, data, &task));
		}
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		for (int tries = 0; ended == round && tries < 100000000; tries++)
			(void)doca_pe_progress(pe);
		CHECK(ended == round + 1);
		switch (round) {
		case 0:
			OK(status);
			for (int i = 0; i < SIZE; i++)
				CHECK(local[i] == (uint8_t)(i * 7));
			break;
		case 1:
			OK(status);
			CHECK(write(to, "x", 1) == 1);
			CHECK(read(from, &word, 1) == 1);
			break;
		default:
			CHECK(status != DOCA_SUCCESS);
			break;
		}
	}
	while (doca_pe_progress(pe))
		;
	OK(doca_ctx_stop(doca_dma_as_ctx(dma)));
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	OK(doca_buf_dec_refcount(remote, NULL));
	OK(doca_buf_dec_refcount(here, NULL));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(theirs));
	OK(doca_mmap_destroy(ours));
	OK(doca_dev_close(dev));
}

int main(void)
{
	int there[2], back[2], exited;
	pid_t child;

	CHECK(pipe(there) == 0 && pipe(back) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		host(there[1], back[0]);
		return 0;
	}
	close(there[1]);
	close(back[0]);
	dpu(back[1], there[0]);
	CHECK(waitpid(child, &exited, 0) == child);
	CHECK(WIFEXITED(exited) && WEXITSTATUS(exited) == 0);
	return 0;
}
