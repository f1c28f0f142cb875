/* doca_clock.h: each clock, and two of them together. */
#include <doca_clock.h>

#include <stdbool.h>

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

static uint64_t ahead_of_monotonic(void)
{
	return now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC);
}

/* Tells whether the wall clock has stepped by more than a second since it was `ahead` of the monotonic clock. Two steps can cancel
 * each other, so this is called after each reading. */
static bool has_stepped(uint64_t ahead)
{
	int64_t step = (int64_t)(ahead_of_monotonic() - ahead);

	return step > 1000000000 || step < -1000000000;
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
	union doca_clock_timespec_t time, nic, nic_time;
	struct doca_clock *clock;
	uint64_t margin = UINT64_MAX;

	OK(doca_clock_cap_nic_free_running_is_supported(info));
	OK(doca_clock_cap_nic_real_time_is_supported(info));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_clock_cap_nic_dpa_timer_is_supported(info));
	OK(doca_clock_create(dev, &clock));
	for (size_t i = 0; i < sizeof(clocks) / sizeof(*clocks);) {
		uint64_t wall = ahead_of_monotonic(), before = now(clocks[i].id), after, crossed, crossed_at;

		bool stepped = has_stepped(wall);

		OK(doca_clock_get_timestamp(clock, clocks[i].type, &time));
		stepped |= has_stepped(wall);
		after = now(clocks[i].id);
		stepped |= has_stepped(wall);
		OK(doca_clock_get_crosstimestamp(clock, clocks[i].type, DOCA_CLOCK_NIC_FREE_RUNNING, &nic_time, &nic,
			&margin));
		stepped |= has_stepped(wall);
		crossed = nanos(nic_time);
		crossed_at = now(clocks[i].id);
		if (stepped | has_stepped(wall))
			continue;
		CHECK(before <= nanos(time) && nanos(time) <= after);
		CHECK(after <= crossed && crossed <= crossed_at + margin);
		CHECK(margin <= crossed_at - after);
		i++;
	}
	OK(doca_clock_get_timestamp(clock, DOCA_CLOCK_HOST_COUNTER_CYCLES, &time));
	uint64_t wall, after;
	bool stepped;
	do {
		wall = ahead_of_monotonic();
		OK(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_COUNTER_CYCLES, DOCA_CLOCK_NIC_REAL_TIME, &nic,
			&time, &margin));
		stepped = has_stepped(wall);
		after = now(CLOCK_REALTIME);
	} while (stepped | has_stepped(wall));
	CHECK(nic.counter > 0 && nanos(time) <= after);
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
