/* doca_clock.h: each clock, and two of them together. */
#include <doca_clock.h>

#include "check.h"

static uint64_t nanos(union doca_clock_timespec_t time)
{
	CHECK(time.ts.tv_nsec >= 0 && time.ts.tv_nsec < 1000000000);
	return (uint64_t)time.ts.tv_sec * 1000000000 + (uint64_t)time.ts.tv_nsec;
}

static uint64_t now(clockid_t id)
{
	union doca_clock_timespec_t time;

	CHECK(clock_gettime(id, &time.ts) == 0);
	return nanos(time);
}

int main(void)
{
	/* Clocks of the device and of the host, with the system clocks behind them. */
	static const struct {
		uint64_t type;
		clockid_t id;
	} clocks[] = {
		{DOCA_CLOCK_NIC_FREE_RUNNING, CLOCK_MONOTONIC_RAW},
		{DOCA_CLOCK_NIC_REAL_TIME, CLOCK_REALTIME},
		{DOCA_CLOCK_HOST_REAL_TIME, CLOCK_REALTIME},
		{DOCA_CLOCK_HOST_MONOTONIC, CLOCK_MONOTONIC},
		{DOCA_CLOCK_HOST_MONOTONIC_RAW, CLOCK_MONOTONIC_RAW},
	};
	struct doca_dev *dev = open_device(DPU);
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	union doca_clock_timespec_t time, nic;
	struct doca_clock *clock;
	uint64_t margin = UINT64_MAX;

	OK(doca_clock_cap_nic_free_running_is_supported(info));
	OK(doca_clock_cap_nic_real_time_is_supported(info));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_clock_cap_nic_dpa_timer_is_supported(info));
	OK(doca_clock_create(dev, &clock));
	for (size_t i = 0; i < sizeof(clocks) / sizeof(*clocks); i++) {
		uint64_t before = now(clocks[i].id);

		OK(doca_clock_get_timestamp(clock, clocks[i].type, &time));
		CHECK(before <= nanos(time) && nanos(time) <= now(clocks[i].id));
		before = now(clocks[i].id);
		OK(doca_clock_get_crosstimestamp(clock, clocks[i].type, DOCA_CLOCK_NIC_FREE_RUNNING, &time, &nic,
			&margin));
		CHECK(before <= nanos(time) && nanos(time) <= now(clocks[i].id) + margin);
		CHECK(margin <= now(clocks[i].id) - before);
	}
	OK(doca_clock_get_timestamp(clock, DOCA_CLOCK_HOST_COUNTER_CYCLES, &time));
	OK(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_COUNTER_CYCLES, DOCA_CLOCK_NIC_REAL_TIME, &nic, &time,
		&margin));
	CHECK(nic.counter > 0 && nanos(time) <= now(CLOCK_REALTIME));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_clock_get_timestamp(clock, DOCA_CLOCK_NIC_DPA_TIMER, &time));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_clock_get_timestamp(clock, 0, &time));
	IS(DOCA_ERROR_INVALID_VALUE, doca_clock_get_timestamp(clock, DOCA_CLOCK_HOST_REAL_TIME, NULL));
	IS(DOCA_ERROR_INVALID_VALUE, doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_REAL_TIME,
		DOCA_CLOCK_HOST_MONOTONIC, &time, &nic, &margin));
	OK(doca_clock_destroy(clock));
	IS(DOCA_ERROR_INVALID_VALUE, doca_clock_get_timestamp(clock, DOCA_CLOCK_HOST_REAL_TIME, &time));
	OK(doca_dev_close(dev));
	return 0;
}
