/* Shared by the programs here: checks that end the program with a message, and the default devices. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_dev.h>
#include <doca_error.h>
#include <doca_version.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

#define IS(code, call) check_code((code), (call), #call, __FILE__, __LINE__)
#define OK(call) IS(DOCA_SUCCESS, call)

static inline void check_code(doca_error_t want, doca_error_t got, const char *call, const char *file, int line)
{
	if (want != got) {
		fprintf(stderr, "%s:%d: %s is %s, not %s\n", file, line, call, doca_get_error_name(got),
			doca_get_error_name(want));
		exit(1);
	}
}

/* Sets equal: the device or representor is at bus:00.0. */
#if DOCA_VER_MAJOR < 2
#define IS_AT(get_bdf, get_equal, info, bus_number, equal) \
	do { \
		struct doca_pci_bdf bdf; \
		OK(get_bdf(info, &bdf)); \
		equal = bdf.bus == (bus_number) && bdf.device == 0 && bdf.function == 0; \
	} while (0)
#else
#define IS_AT(get_bdf, get_equal, info, bus_number, equal) \
	do { \
		char text[DOCA_DEVINFO_PCI_ADDR_SIZE]; \
		snprintf(text, sizeof(text), "0000:%02x:00.0", (bus_number) & 0xff); \
		OK(get_equal(info, text, &(equal))); \
	} while (0)
#endif

/* The device at 03:00.0 (the DPU's) or 3b:00.0 (the host's). */
static inline struct doca_dev *open_device(unsigned bus)
{
	struct doca_devinfo **list;
	struct doca_dev *dev = NULL;
	uint32_t count;

	OK(doca_devinfo_list_create(&list, &count));
	CHECK(count == 6);
	for (uint32_t i = 0; i < count && dev == NULL; i++) {
		uint8_t equal = 0;

		IS_AT(doca_devinfo_get_pci_addr, doca_devinfo_get_is_pci_addr_equal, list[i], bus, equal);
		if (equal)
			OK(doca_dev_open(list[i], &dev));
	}
	OK(doca_devinfo_list_destroy(list));
	CHECK(dev != NULL);
	return dev;
}

/* The representor of the host's function at 3b:00.0. */
static inline struct doca_dev_rep *open_representor(struct doca_dev *dev)
{
	struct doca_devinfo_rep **list;
	struct doca_dev_rep *rep = NULL;
	uint32_t count;

	OK(doca_devinfo_rep_list_create(dev, DOCA_DEV_REP_FILTER_NET, &list, &count));
	for (uint32_t i = 0; i < count && rep == NULL; i++) {
		uint8_t equal = 0;

		IS_AT(doca_devinfo_rep_get_pci_addr, doca_devinfo_rep_get_is_pci_addr_equal, list[i], 0x3b, equal);
		if (equal)
			OK(doca_dev_rep_open(list[i], &rep));
	}
	OK(doca_devinfo_rep_list_destroy(list));
	CHECK(rep != NULL);
	return rep;
}

#endif
