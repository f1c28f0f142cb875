/* A libibverbs.so.1 for `instructions.rs`, whose device runs RDMA reads at once. For each request it does the work of a NIC's
 * provider: it copies the request to its own queue, and counts free places and completions. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "verbs.h"

enum { DEPTH = 1024 };

struct queue {
	struct ibv_qp public;
	uint32_t head, tail, depth;
	struct wqe {
		uint64_t local, remote;
		uint32_t length, lkey, rkey, flags;
	} wqes[DEPTH];
};

struct completions {
	struct ibv_cq public;
	uint32_t head, tail;
	struct cqe {
		struct queue *queue;
		uint64_t wr_id;
		uint32_t retires;
	} cqes[DEPTH];
};

static int
post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct queue *queue = (struct queue *)qp;
	struct completions *cq = (struct completions *)qp->send_cq;

	for (; wr != NULL; wr = wr->next) {
		struct wqe *wqe = &queue->wqes[queue->head % DEPTH];

		if (queue->head - queue->tail >= queue->depth || wr->opcode != RDMA_READ || wr->num_sge != 1) {
			*bad = wr;
			return 12;
		}
		wqe->local = wr->sg_list->addr;
		wqe->length = wr->sg_list->length;
		wqe->lkey = wr->sg_list->lkey;
		wqe->remote = wr->remote_addr;
		wqe->rkey = wr->rkey;
		wqe->flags = wr->send_flags;
		queue->head++;
		if (wr->send_flags & SIGNALED) {
			struct cqe *cqe = &cq->cqes[cq->head++ % DEPTH];

			cqe->queue = queue;
			cqe->wr_id = wr->wr_id;
			cqe->retires = queue->head;
		}
		memcpy((void *)wqe->local, (void *)wqe->remote, wqe->length);
	}
	return 0;
}

static int
poll_cq(struct ibv_cq *public, int most, struct ibv_wc *wc)
{
	struct completions *cq = (struct completions *)public;
	int number = 0;

	for (; number < most && cq->tail != cq->head; number++) {
		struct cqe *cqe = &cq->cqes[cq->tail++ % DEPTH];

		cqe->queue->tail = cqe->retires;
		wc[number].wr_id = cqe->wr_id;
		wc[number].status = 0;
		wc[number].qp_num = cqe->queue->public.qp_num;
	}
	return number;
}

static int
req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

void **
ibv_get_device_list(int *number)
{
	static void *list[2] = {"provider", NULL};

	*number = 1;
	return list;
}

void
ibv_free_device_list(void **list)
{
	(void)list;
}

const char *
ibv_get_device_name(void *device)
{
	return device;
}

struct ibv_context *
ibv_open_device(void *device)
{
	struct ibv_context *context = calloc(1, sizeof(*context));

	context->device = device;
	context->ops.post_send = post_send;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	context->async_fd = eventfd(0, 0);
	return context;
}

int
ibv_close_device(struct ibv_context *context)
{
	free(context);
	return 0;
}

/* Writes a value at its offset in a structure. */
static void
set(void *structure, size_t offset, const void *value, size_t length)
{
	memcpy((char *)structure + offset, value, length);
}

int
ibv_query_device(struct ibv_context *context, void *attr)
{
	int most = DEPTH, some = 16;
	uint64_t length = 1ULL << 40;

	(void)context;
	memset(attr, 0, 232);
	set(attr, 80, &length, 8);  /* max_mr_size */
	set(attr, 108, &some, 4);   /* max_qp */
	set(attr, 112, &most, 4);   /* max_qp_wr */
	set(attr, 132, &most, 4);   /* max_cqe */
	set(attr, 144, &some, 4);   /* max_qp_rd_atom */
	set(attr, 156, &some, 4);   /* max_qp_init_rd_atom */
	set(attr, 227, "\1", 1);    /* phys_port_cnt */
	return 0;
}

int
ibv_query_port(struct ibv_context *context, uint8_t port, void *attr)
{
	int state = PORT_ACTIVE, mtu = 5;
	uint32_t longest = 1U << 30;
	uint16_t lid = 1;
	uint8_t layer = INFINIBAND;

	(void)context;
	(void)port;
	memset(attr, 0, 52);
	set(attr, 0, &state, 4);
	set(attr, 4, &mtu, 4);      /* max_mtu */
	set(attr, 8, &mtu, 4);      /* active_mtu */
	set(attr, 20, &longest, 4); /* max_msg_sz */
	set(attr, 34, &lid, 2);
	set(attr, 46, &layer, 1);
	return 0;
}

int
ibv_query_gid(struct ibv_context *context, uint8_t port, int index, void *gid)
{
	(void)context;
	(void)port;
	(void)index;
	(void)gid;
	return -1;
}

int
ibv_get_async_event(struct ibv_context *context, void *event)
{
	(void)context;
	(void)event;
	return -1;
}

void
ibv_ack_async_event(void *event)
{
	(void)event;
}

void *
ibv_alloc_pd(struct ibv_context *context)
{
	return context;
}

int
ibv_dealloc_pd(void *pd)
{
	(void)pd;
	return 0;
}

struct ibv_mr *
ibv_reg_mr(void *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	mr->context = mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = 1;
	mr->rkey = 2;
	return mr;
}

int
ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));

	channel->context = context;
	channel->fd = eventfd(0, 0);
	return channel;
}

int
ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	free(channel);
	return 0;
}

struct ibv_cq *
ibv_create_cq(struct ibv_context *context, int cqe, void *data, struct ibv_comp_channel *channel, int vector)
{
	struct completions *cq = calloc(1, sizeof(*cq));

	(void)data;
	(void)vector;
	cq->public.context = context;
	cq->public.channel = channel;
	cq->public.cqe = cqe;
	return &cq->public;
}

int
ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

int
ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **data)
{
	(void)channel;
	(void)cq;
	(void)data;
	return -1;
}

void
ibv_ack_cq_events(struct ibv_cq *cq, unsigned int number)
{
	(void)cq;
	(void)number;
}

struct ibv_qp *
ibv_create_qp(void *pd, struct ibv_qp_init_attr *attr)
{
	struct queue *queue = calloc(1, sizeof(*queue));

	queue->public.context = queue->public.pd = pd;
	queue->public.send_cq = attr->send_cq;
	queue->public.qp_num = 7;
	queue->depth = attr->max_send_wr;
	return &queue->public;
}

int
ibv_modify_qp(struct ibv_qp *qp, void *attr, int mask)
{
	(void)qp;
	(void)attr;
	(void)mask;
	return 0;
}

int
ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	return 0;
}
