/* Shared by the programs here: checks that print a message and end the program, and the default devices. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_dev.h>
#include <doca_error.h>

#define DPU "0000:03:00.0"
#define HOST "0000:3b:00.0"

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
		fprintf(stderr, "%s:%d: %s is %s, not %s\n", file, line, call, doca_error_get_name(got),
			doca_error_get_name(want));
		exit(1);
	}
}

/* Opens the device with this address, which must exist. */
static inline struct doca_dev *open_device(const char *address)
{
	struct doca_devinfo **list = NULL;
	struct doca_dev *dev = NULL;
	uint32_t count = 0;

	OK(doca_devinfo_create_list(&list, &count));
	for (uint32_t i = 0; i < count && dev == NULL; i++) {
		uint8_t equal = 0;

		OK(doca_devinfo_is_equal_pci_addr(list[i], address, &equal));
		if (equal)
			OK(doca_dev_open(list[i], &dev));
	}
	OK(doca_devinfo_destroy_list(list));
	CHECK(dev != NULL);
	return dev;
}

/* Opens the representor of the host's function with this address. */
static inline struct doca_dev_rep *open_representor(struct doca_dev *dev, const char *address)
{
	struct doca_devinfo_rep **list = NULL;
	struct doca_dev_rep *rep = NULL;
	uint32_t count = 0;

	OK(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &count));
	for (uint32_t i = 0; i < count && rep == NULL; i++) {
		uint8_t equal = 0;

		OK(doca_devinfo_rep_is_equal_pci_addr(list[i], address, &equal));
		if (equal)
			OK(doca_dev_rep_open(list[i], &rep));
	}
	OK(doca_devinfo_rep_destroy_list(list));
	CHECK(rep != NULL);
	return rep;
}

#endif
