/* doca_dev.h: devices and representors of the default configuration. */
#include <doca_dma.h>
#include <doca_mmap.h>

#include "check.h"

int main(void)
{
	struct doca_devinfo **list = NULL;
	struct doca_devinfo_rep **reps = NULL;
	struct doca_dev *dev, *again = NULL;
	struct doca_dev_rep *rep;
	struct doca_devinfo *info;
	uint32_t count = 0, dpus = 0, nb_reps = 0;
	char address[DOCA_DEVINFO_PCI_ADDR_SIZE], name[DOCA_DEVINFO_IFACE_NAME_SIZE], ib[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	char vuid[DOCA_DEVINFO_REP_VUID_SIZE];
	uint8_t mac[DOCA_DEVINFO_MAC_ADDR_SIZE], ip[DOCA_DEVINFO_IPV4_ADDR_SIZE], equal = 0, can = 0;
	enum doca_pci_func_type kind;
	uint64_t rate = 0, size = 0;
	uint32_t length = 0;

	IS(DOCA_ERROR_INVALID_VALUE, doca_devinfo_create_list(NULL, &count));
	IS(DOCA_ERROR_INVALID_VALUE, doca_devinfo_create_list(&list, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_devinfo_destroy_list(NULL));
	OK(doca_devinfo_create_list(&list, &count));
	CHECK(count >= 2);
	for (uint32_t i = 0; i < count; i++) {
		OK(doca_devinfo_get_pci_addr_str(list[i], address));
		CHECK(strlen(address) == DOCA_DEVINFO_PCI_ADDR_SIZE - 1);
		OK(doca_devinfo_is_equal_pci_addr(list[i], address, &equal));
		CHECK(equal == 1);
		OK(doca_devinfo_is_equal_pci_addr(list[i], address + strlen("0000:"), &equal));
		CHECK(equal == 1);
		OK(doca_devinfo_is_equal_pci_addr(list[i], "7f:1f.7", &equal));
		CHECK(equal == 0);
		IS(DOCA_ERROR_INVALID_VALUE, doca_devinfo_is_equal_pci_addr(list[i], "no address", &equal));
		OK(doca_devinfo_get_iface_name(list[i], name, sizeof(name)));
		OK(doca_devinfo_get_ibdev_name(list[i], ib, sizeof(ib)));
		CHECK(strlen(name) > 0 && strlen(ib) > 0);
		IS(DOCA_ERROR_INVALID_VALUE, doca_devinfo_get_iface_name(list[i], name, 1));
		OK(doca_devinfo_get_mac_addr(list[i], mac, sizeof(mac)));
		OK(doca_devinfo_get_ipv4_addr(list[i], ip, sizeof(ip)));
		OK(doca_devinfo_get_active_rate(list[i], &rate));
		CHECK(rate > 0);
		OK(doca_dma_cap_task_memcpy_is_supported(list[i]));
		OK(doca_dma_cap_task_memcpy_get_max_buf_size(list[i], &size));
		OK(doca_dma_cap_task_memcpy_get_max_buf_list_len(list[i], &length));
		CHECK(size >= 1 << 20 && length >= 1);
		OK(doca_devinfo_rep_cap_is_filter_net_supported(list[i], &can));
		dpus += can;
	}
	CHECK(dpus > 0 && dpus < count);

	/* Open devices outlive the list. */
	OK(doca_dev_open(list[0], &dev));
	OK(doca_dev_open(list[0], &again));
	CHECK(dev == again);
	OK(doca_devinfo_destroy_list(list));
	IS(DOCA_ERROR_INVALID_VALUE, doca_devinfo_destroy_list(list));
	info = doca_dev_as_devinfo(dev);
	CHECK(info != NULL);
	OK(doca_devinfo_get_pci_addr_str(info, address));
	CHECK(doca_dev_as_devinfo(NULL) == NULL);
	OK(doca_dev_close(dev));
	OK(doca_devinfo_get_pci_addr_str(doca_dev_as_devinfo(dev), address));
	OK(doca_dev_close(dev));
	OK(doca_dev_close(NULL));

	/* Only the DPU has representors. */
	dev = open_device(HOST);
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_NET, &reps, &nb_reps));
	OK(doca_dev_close(dev));
	dev = open_device(DPU);
	IS(DOCA_ERROR_INVALID_VALUE, doca_devinfo_rep_create_list(dev, 77, &reps, &nb_reps));
	OK(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_ALL, &reps, &nb_reps));
	CHECK(nb_reps >= 2);
	for (uint32_t i = 0; i < nb_reps; i++) {
		OK(doca_devinfo_rep_get_pci_addr_str(reps[i], address));
		OK(doca_devinfo_rep_is_equal_pci_addr(reps[i], address, &equal));
		CHECK(equal == 1);
		OK(doca_devinfo_rep_get_vuid(reps[i], vuid, sizeof(vuid)));
		OK(doca_devinfo_rep_get_pci_func_type(reps[i], &kind));
		CHECK(kind == DOCA_PCI_FUNC_TYPE_PF);
		OK(doca_devinfo_rep_get_is_hotplug(reps[i], &can));
		CHECK(can == 0);
	}
	OK(doca_devinfo_rep_destroy_list(reps));
	rep = open_representor(dev, HOST);
	OK(doca_devinfo_rep_get_pci_addr_str(doca_dev_rep_as_devinfo(rep), address));
	CHECK(strcmp(address, HOST) == 0);
	OK(doca_dev_rep_close(rep));

	/* A device cannot be closed while a map has it. */
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, dev));
	IS(DOCA_ERROR_IN_USE, doca_dev_close(dev));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(dev));
	return 0;
}
