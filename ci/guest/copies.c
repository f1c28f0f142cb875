// SPDX-License-Identifier: MIT
// A kernel module for a virtual machine of ci/vm. It makes random copies through the first channel
// of the kernel's DMA engines, several in flight, and compares the bytes with copies by the
// processor. Loading it (insmod copies.ko count=N seed=N) runs all copies. Then the parameter
// `result` is the number of copies that the driver reported as failed, or a negative error number,
// such as -EILSEQ if a copy that the driver reported as successful has wrong bytes.
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/sched.h>
#include <linux/vmalloc.h>

#define SIZE (256 << 10)
#define LONGEST (64 << 10)
#define MOST 24
#define PATIENCE (60 * HZ)

static int count = 1000;
module_param(count, int, 0);
static int seed = 1;
module_param(seed, int, 0);
static int result;
module_param(result, int, 0444);

static struct rnd_state state;
static atomic_t failed, ended;

static u32 below(u32 end)
{
	return prandom_u32_state(&state) % end;
}

static void report(void *unused, const struct dmaengine_result *outcome)
{
	if (outcome->result != DMA_TRANS_NOERROR)
		atomic_inc(&failed);
	atomic_inc(&ended);
}

// Submits a batch, and makes the same copies by the processor.
static int submit(struct dma_chan *chan, dma_addr_t from, dma_addr_t to, const u8 *src, u8 *expected, int batch)
{
	while (batch--) {
		// Most copies are short. Their alignment is arbitrary.
		size_t len = 1 + below(1 << below(17)) % LONGEST;
		size_t at = below(SIZE - len), dst = below(SIZE - len);
		struct dma_async_tx_descriptor *tx =
			dmaengine_prep_dma_memcpy(chan, to + dst, from + at, len, DMA_CTRL_ACK | DMA_PREP_INTERRUPT);

		if (!tx)
			return -ENOMEM;
		tx->callback_result = report;
		if (dma_submit_error(dmaengine_submit(tx)))
			return -EIO;
		memcpy(expected + dst, src + at, len);
	}
	dma_async_issue_pending(chan);
	return 0;
}

static int copy(struct dma_chan *chan, dma_addr_t from, dma_addr_t to, u8 *src, u8 *dst, u8 *expected)
{
	int done = 0, lost = 0;

	prandom_bytes_state(&state, src, SIZE);
	prandom_bytes_state(&state, dst, SIZE);
	memcpy(expected, dst, SIZE);
	while (done < count) {
		int batch = 1 + below(MOST), code;
		unsigned long end = jiffies + PATIENCE;

		atomic_set(&failed, 0);
		atomic_set(&ended, 0);
		code = submit(chan, from, to, src, expected, batch);
		if (code)
			return code;
		while (atomic_read(&ended) < batch) {
			// Makes the driver check for completions.
			dma_async_is_tx_complete(chan, chan->cookie, NULL, NULL);
			if (time_after(jiffies, end)) {
				pr_err("copies: %d of %d copies have ended\n", atomic_read(&ended), batch);
				return -ETIMEDOUT;
			}
			cond_resched();
		}
		if (atomic_read(&failed)) {
			lost += atomic_read(&failed);
			memcpy(expected, dst, SIZE);
		} else if (memcmp(dst, expected, SIZE)) {
			pr_err("copies: wrong bytes after %d copies, seed %d\n", done, seed);
			return -EILSEQ;
		}
		done += batch;
	}
	return lost;
}

static int __init start(void)
{
	dma_addr_t from, to;
	u8 *src, *dst, *expected = vmalloc(SIZE);
	struct dma_chan *chan;
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	chan = dma_request_channel(mask, NULL, NULL);
	if (!chan) {
		vfree(expected);
		return -ENODEV;
	}
	prandom_seed_state(&state, seed);
	src = dma_alloc_coherent(chan->device->dev, SIZE, &from, GFP_KERNEL);
	dst = dma_alloc_coherent(chan->device->dev, SIZE, &to, GFP_KERNEL);
	result = src && dst && expected ? copy(chan, from, to, src, dst, expected) : -ENOMEM;
	// Stop the channel before its memory is freed.
	dmaengine_terminate_sync(chan);
	dma_release_channel(chan);
	if (src)
		dma_free_coherent(chan->device->dev, SIZE, src, from);
	if (dst)
		dma_free_coherent(chan->device->dev, SIZE, dst, to);
	vfree(expected);
	return 0;
}
module_init(start);

static void __exit stop(void)
{
}
module_exit(stop);

MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Random copies through a DMA engine");
