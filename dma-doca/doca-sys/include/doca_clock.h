/* doca_clock.h: clocks of the device and of the host, which can also be read in pairs.
 *
 * Written for this project from the names, types and numbers of DOCA 3.2, as public code uses them. */
#ifndef DMA_DOCA_CLOCK_H
#define DMA_DOCA_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <doca_compat.h>
/* NVIDIA's sample uses constants of this header. */
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_clock;

/* Clocks of the device. */
#define DOCA_CLOCK_NIC_FREE_RUNNING 0x1
#define DOCA_CLOCK_NIC_REAL_TIME (0x1 << 1)
#define DOCA_CLOCK_NIC_DPA_TIMER (0x1 << 8)
/* Clocks of the host. The first one is a counter, and the others are times. */
#define DOCA_CLOCK_HOST_COUNTER_CYCLES (0x1 << 16)
#define DOCA_CLOCK_HOST_REAL_TIME (0x1 << 17)
#define DOCA_CLOCK_HOST_MONOTONIC (0x1 << 18)
#define DOCA_CLOCK_HOST_MONOTONIC_RAW (0x1 << 19)

union doca_clock_timespec_t {
	struct timespec ts;
	uint64_t counter;
};

DOCA_EXPERIMENTAL
doca_error_t doca_clock_cap_nic_free_running_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_cap_nic_real_time_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_cap_nic_dpa_timer_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_create(const struct doca_dev *dev, struct doca_clock **clock);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_destroy(struct doca_clock *clock);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_get_timestamp(const struct doca_clock *clock, uint64_t clock_type,
	union doca_clock_timespec_t *clock_ts);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_get_crosstimestamp(const struct doca_clock *clock, uint64_t primary_clock_type,
	uint64_t nic_clock_type, union doca_clock_timespec_t *primary_clock_ts,
	union doca_clock_timespec_t *nic_clock_ts, uint64_t *error_margin_nsecs);

#ifdef __cplusplus
}
#endif

#endif
