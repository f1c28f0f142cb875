/* DOCA 2.2: sync events, called and as a context of a work queue, on both sides of a card. */
#include <poll.h>
#include <string.h>

#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_sync_event.h>

#include "check.h"

enum { DEPTH = 2, NUMBER = 77 };

static struct doca_job base(enum doca_sync_event_job_types type, struct doca_ctx *ctx)
{
	struct doca_job job;

	memset(&job, 0, sizeof(job));
	job.type = (int)type;
	job.ctx = ctx;
	job.user_data.u64 = NUMBER;
	return job;
}

/* Returns the result of the next ended job, which must have this type. */
static doca_error_t next(struct doca_workq *workq, enum doca_sync_event_job_types type)
{
	struct doca_event event;
	doca_error_t result;

	memset(&event, 0, sizeof(event));
	result = doca_workq_progress_retrieve(workq, &event, DOCA_WORKQ_RETRIEVE_FLAGS_NONE);
	if (result != DOCA_ERROR_AGAIN) {
		CHECK(event.type == (int)type && event.user_data.u64 == NUMBER);
		CHECK((result == DOCA_SUCCESS) == (event.result.u64 == DOCA_SUCCESS));
	}
	return result;
}

static struct doca_sync_event *imported(struct doca_dev *dpu, const uint8_t *desc, size_t len)
{
	struct doca_sync_event *event;

	OK(doca_sync_event_create_from_export(dpu, desc, len, &event));
	return event;
}

int main(void)
{
	struct doca_dev *host = open_device(HOST), *dpu = open_device(DPU);
	struct doca_devinfo *info = doca_dev_as_devinfo(host);
	struct doca_sync_event *event, *remote, *waiting;
	struct doca_ctx *ctx, *far;
	struct doca_workq *workq, *far_workq;
	doca_event_handle_t handle;
	const uint8_t *desc = NULL;
	size_t len = 0;
	uint64_t number = 0;

	OK(doca_sync_event_job_get_supported(info, DOCA_SYNC_EVENT_JOB_WAIT_GT));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_sync_event_job_get_supported(info, (enum doca_sync_event_job_types)1));
	OK(doca_sync_event_get_export_to_dpu_supported(info));
	OK(doca_sync_event_get_create_from_export_supported(doca_dev_as_devinfo(dpu)));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_sync_event_get_export_to_dpa_supported(info));

	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_publisher_add_location_dpu(event));
	ctx = doca_sync_event_as_ctx(event);
	CHECK(ctx != NULL && doca_sync_event_as_ctx(event) == ctx);
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_start(event));
	IS(DOCA_ERROR_BAD_STATE, doca_ctx_start(ctx));
	OK(doca_sync_event_subscriber_add_location_cpu(event, host));
	IS(DOCA_ERROR_NOT_SUPPORTED, doca_ctx_dev_add(ctx, host));
	IS(DOCA_ERROR_INVALID_VALUE, doca_dma_destroy((struct doca_dma *)ctx));
	IS(DOCA_ERROR_BAD_STATE, doca_sync_event_get(event, &number));
	OK(doca_ctx_start(ctx));
	IS(DOCA_ERROR_BAD_STATE, doca_ctx_start(ctx));
	OK(doca_workq_create(DEPTH, &workq));
	OK(doca_workq_set_event_driven_enable(workq, 1));

	struct doca_sync_event_job_wait wait = {base(DOCA_SYNC_EVENT_JOB_WAIT_GT, ctx), 6, UINT64_MAX};
	struct doca_sync_event_job_get get = {base(DOCA_SYNC_EVENT_JOB_GET, ctx), &number};
	struct doca_sync_event_job_update_set set = {base(DOCA_SYNC_EVENT_JOB_UPDATE_SET, ctx), 5};
	struct doca_sync_event_job_update_add add = {base(DOCA_SYNC_EVENT_JOB_UPDATE_ADD, ctx), 2, &number};

	IS(DOCA_ERROR_NOT_FOUND, doca_workq_submit(workq, &set.base));
	OK(doca_ctx_workq_add(ctx, workq));
	OK(doca_workq_submit(workq, &set.base));
	OK(next(workq, DOCA_SYNC_EVENT_JOB_UPDATE_SET));
	OK(doca_workq_submit(workq, &get.base));
	OK(next(workq, DOCA_SYNC_EVENT_JOB_GET));
	CHECK(number == 5);
	number = 0;
	OK(doca_workq_submit(workq, &add.base));
	OK(next(workq, DOCA_SYNC_EVENT_JOB_UPDATE_ADD));
	CHECK(number == 5);
	OK(doca_sync_event_get(event, &number));
	CHECK(number == 7);

	/* The wait whose condition holds ends. The other wait continues. */
	OK(doca_workq_submit(workq, &wait.base));
	wait.value = 8;
	OK(doca_workq_submit(workq, &wait.base));
	IS(DOCA_ERROR_NO_MEMORY, doca_workq_submit(workq, &get.base));
	OK(next(workq, DOCA_SYNC_EVENT_JOB_WAIT_GT));
	IS(DOCA_ERROR_AGAIN, next(workq, DOCA_SYNC_EVENT_JOB_WAIT_GT));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_ctx_workq_rm(ctx, workq));
	IS(DOCA_ERROR_NOT_PERMITTED, doca_ctx_stop(ctx));
	IS(DOCA_ERROR_IN_USE, doca_sync_event_destroy(event));

	/* The other side fulfils the condition while this side sleeps. */
	OK(doca_sync_event_export_to_dpu(event, host, &desc, &len));
	CHECK(len > 0 && len <= 150);
	remote = imported(dpu, desc, len);
	IS(DOCA_ERROR_NOT_PERMITTED, doca_sync_event_publisher_add_location_cpu(remote, dpu));
	OK(doca_sync_event_start(remote));
	CHECK(doca_sync_event_as_ctx(remote) == NULL);
	OK(doca_workq_get_event_handle(workq, &handle));
	OK(doca_workq_event_handle_arm(workq));
	OK(doca_sync_event_update_set(remote, 9));
	for (doca_error_t result = DOCA_ERROR_AGAIN; result != DOCA_SUCCESS;) {
		struct pollfd waits = {handle, POLLIN, 0};

		CHECK(poll(&waits, 1, 120000) == 1);
		OK(doca_workq_event_handle_clear(workq, handle));
		result = next(workq, DOCA_SYNC_EVENT_JOB_WAIT_GT);
		CHECK(result == DOCA_SUCCESS || result == DOCA_ERROR_AGAIN);
		OK(doca_workq_event_handle_arm(workq));
	}
	OK(doca_sync_event_update_add(event, 1, &number));
	CHECK(number == 9);
	OK(doca_sync_event_wait_gt(remote, 9, UINT64_MAX));
	OK(doca_sync_event_wait_gt_yield(remote, 9, 0xff));

	/* Mistakes. */
	wait.mask = 1;
	IS(DOCA_ERROR_INVALID_VALUE, doca_workq_submit(workq, &wait.base));
	set.base.type = (int)DOCA_DMA_JOB_MEMCPY;
	IS(DOCA_ERROR_INVALID_VALUE, doca_workq_submit(workq, &set.base));
	get.value = NULL;
	IS(DOCA_ERROR_INVALID_VALUE, doca_workq_submit(workq, &get.base));
	IS(DOCA_ERROR_AGAIN, next(workq, DOCA_SYNC_EVENT_JOB_GET));

	/* A wait for an imported event that its exporter destroys. */
	waiting = imported(dpu, desc, len);
	far = doca_sync_event_as_ctx(waiting);
	OK(doca_ctx_start(far));
	OK(doca_workq_create(DEPTH, &far_workq));
	OK(doca_ctx_workq_add(far, far_workq));
	wait.base.ctx = far;
	wait.value = 10;
	wait.mask = UINT64_MAX;
	OK(doca_workq_submit(far_workq, &wait.base));
	IS(DOCA_ERROR_AGAIN, next(far_workq, DOCA_SYNC_EVENT_JOB_WAIT_GT));
	OK(doca_ctx_workq_rm(ctx, workq));
	OK(doca_workq_destroy(workq));
	OK(doca_ctx_stop(ctx));
	OK(doca_sync_event_destroy(event));
	IS(DOCA_ERROR_INVALID_VALUE, doca_sync_event_destroy(event));
	IS(DOCA_ERROR_IO_FAILED, next(far_workq, DOCA_SYNC_EVENT_JOB_WAIT_GT));
	IS(DOCA_ERROR_IO_FAILED, doca_sync_event_get(remote, &number));
	OK(doca_ctx_workq_rm(far, far_workq));
	OK(doca_workq_destroy(far_workq));
	OK(doca_ctx_stop(far));
	OK(doca_sync_event_destroy(waiting));
	OK(doca_sync_event_stop(remote));
	OK(doca_sync_event_destroy(remote));
	OK(doca_dev_close(host));
	OK(doca_dev_close(dpu));
	return 0;
}
