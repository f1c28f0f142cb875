/* doca_mmap.h, doca_buf.h, doca_buf_inventory.h. */
#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_mmap.h>

#include "check.h"

static char memory[8192];
static int frees;

static void on_free(void *addr, size_t len, void *cookie)
{
	CHECK(addr == memory && len == sizeof(memory) && cookie == &frees);
	frees++;
}

int main(void)
{
	struct doca_dev *dev = open_device(DPU), *absent = open_device(HOST);
	struct doca_mmap *mmap;
	struct doca_buf_inventory *inventory;
	struct doca_buf *buf, *other, *third, *none = NULL;
	union doca_data data;
	void *addr = NULL;
	size_t len = 0;
	uint32_t count = 0, key = 0, same = 0;
	uint16_t refs = 0;

	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_create(NULL));
	OK(doca_mmap_create(&mmap));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_memrange(mmap, NULL, 1));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_permissions(mmap, 1u << 20));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_set_permissions(mmap,
		DOCA_ACCESS_FLAG_PCI_READ_WRITE | DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_set_free_cb(mmap, on_free, &frees));
	data.ptr = &frees;
	OK(doca_mmap_set_user_data(mmap, data));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_mmap_get_mkey(mmap, dev, &key));
	OK(doca_mmap_start(mmap));
	OK(doca_mmap_get_mkey(mmap, dev, &key));
	OK(doca_mmap_get_mkey(mmap, dev, &same));
	CHECK(key != 0 && key == same);
	IS(DOCA_ERROR_NOT_FOUND, doca_mmap_get_mkey(mmap, absent, &key));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_get_mkey(NULL, dev, &key));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_get_mkey(mmap, NULL, &key));
	IS(DOCA_ERROR_INVALID_VALUE, doca_mmap_get_mkey(mmap, dev, NULL));
	OK(doca_dev_close(absent));
	IS(DOCA_ERROR_BAD_STATE, doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_ONLY));
	OK(doca_mmap_get_user_data(mmap, &data));
	CHECK(data.ptr == &frees);
	OK(doca_mmap_get_memrange(mmap, &addr, &len));
	CHECK(addr == memory && len == sizeof(memory));

	IS(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_create(0, &inventory));
	OK(doca_buf_inventory_create(3, &inventory));
	IS(DOCA_ERROR_BAD_STATE, doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory, 10, &none));
	OK(doca_buf_inventory_start(inventory));
	IS(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory - 1, 10, &none));
	IS(DOCA_ERROR_INVALID_VALUE,
		doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory, sizeof(memory) + 1, &none));

	OK(doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory, 100, &buf));
	OK(doca_buf_inventory_buf_reuse_by_data(buf, memory + 8, 16));
	OK(doca_buf_get_head(buf, &addr));
	OK(doca_buf_get_data_len(buf, &len));
	CHECK(addr == memory + 8 && len == 16);
	IS(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_buf_reuse_by_addr(buf, memory, sizeof(memory) + 1));
	IS(DOCA_ERROR_INVALID_VALUE, doca_buf_inventory_buf_reuse_by_args(buf, memory, 8, memory + 4, 5));
	OK(doca_buf_inventory_buf_reuse_by_addr(buf, memory, 100));
	OK(doca_buf_get_data_len(buf, &len));
	CHECK(len == 0);
	OK(doca_buf_get_head(buf, &addr));
	OK(doca_buf_get_len(buf, &len));
	CHECK(addr == memory && len == 100);
	OK(doca_buf_get_data_len(buf, &len));
	CHECK(len == 0);
	OK(doca_buf_inventory_buf_get_by_data(inventory, mmap, memory + 100, 50, &other));
	OK(doca_buf_get_data(other, &addr));
	OK(doca_buf_get_data_len(other, &len));
	CHECK(addr == memory + 100 && len == 50);
	OK(doca_mmap_get_num_bufs(mmap, &count));
	CHECK(count == 2);
	OK(doca_buf_set_data(buf, memory + 90, 10));
	OK(doca_buf_reset_data_len(buf));
	OK(doca_buf_get_data_len(buf, &len));
	CHECK(len == 0);

	/* References. */
	OK(doca_buf_inc_refcount(buf, &refs));
	CHECK(refs == 1);
	OK(doca_buf_get_refcount(buf, &refs));
	CHECK(refs == 2);
	OK(doca_buf_dec_refcount(buf, &refs));
	CHECK(refs == 2);

	/* Lists. */
	OK(doca_buf_inventory_buf_dup(inventory, other, &third));
	IS(DOCA_ERROR_NO_MEMORY, doca_buf_inventory_buf_dup(inventory, other, &none));
	OK(doca_buf_chain_list(buf, other));
	OK(doca_buf_chain_list(buf, third));
	OK(doca_buf_get_list_len(buf, &count));
	CHECK(count == 3);
	OK(doca_buf_get_next_in_list(buf, &none));
	CHECK(none == other);
	OK(doca_buf_get_last_in_list(buf, &none));
	CHECK(none == third);
	IS(DOCA_ERROR_NOT_PERMITTED, doca_buf_dec_refcount(other, NULL));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_buf_inventory_get_num_free_elements(inventory, &count));
	CHECK(count == 3);

	OK(doca_buf_inventory_buf_get_by_addr(inventory, mmap, memory, 10, &buf));
	CHECK(doca_mmap_destroy(mmap) != DOCA_SUCCESS);
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_buf_inventory_stop(inventory));
	OK(doca_buf_inventory_destroy(inventory));
	CHECK(frees == 0);
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_destroy(mmap));
	CHECK(frees == 1);
	OK(doca_dev_close(dev));
	return 0;
}
