/* Makes ../check.h usable with DOCA 1.5 and 2.2, whose calls get the names of later versions. */
#ifndef WORKQ_CHECK_H
#define WORKQ_CHECK_H

#include <stdio.h>
#include <string.h>

#include <doca_dev.h>
#include <doca_error.h>
#include <doca_version.h>

#if DOCA_VER_MAJOR < 2 || (DOCA_VER_MAJOR == 2 && DOCA_VER_MINOR < 5)

#define doca_error_get_name doca_get_error_name
#define doca_devinfo_create_list doca_devinfo_list_create
#define doca_devinfo_destroy_list doca_devinfo_list_destroy
#define doca_devinfo_rep_create_list doca_devinfo_rep_list_create
#define doca_devinfo_rep_destroy_list doca_devinfo_rep_list_destroy
#define DOCA_DEVINFO_REP_FILTER_NET DOCA_DEV_REP_FILTER_NET

#if DOCA_VER_MAJOR < 2
#define EQUAL(kind) \
	static inline doca_error_t kind##_is_equal_pci_addr(const struct kind *info, const char *address, uint8_t *equal) \
	{ \
		struct doca_pci_bdf bdf; \
		char text[16]; \
		doca_error_t result = kind##_get_pci_addr(info, &bdf); \
		snprintf(text, sizeof(text), "0000:%02x:%02x.%x", bdf.bus, bdf.device, bdf.function); \
		*equal = strcmp(text, address) == 0; \
		return result; \
	}
EQUAL(doca_devinfo)
EQUAL(doca_devinfo_rep)
#else
#define doca_devinfo_is_equal_pci_addr doca_devinfo_get_is_pci_addr_equal
#define doca_devinfo_rep_is_equal_pci_addr doca_devinfo_rep_get_is_pci_addr_equal
#endif

#endif

#include "../check.h"

#endif
