/* A C program that copies in batches of 32, and checks the end of each copy. `instructions.rs` compares the engine with it. Its
 * arguments are the number of batches, and the choice between a completion of each request and one for the batch. */
#include <stdlib.h>

#include "verbs.h"

enum { BATCH = 32, LEN = 64 };

int
main(int argc, char **argv)
{
	long batches = argc > 1 ? atol(argv[1]) : 1;
	int all = argc > 2 && argv[2][0] == 'a';
	static struct ibv_send_wr wrs[BATCH];
	static struct ibv_sge sges[BATCH];
	struct ibv_wc completions[16];
	struct ibv_send_wr *bad;
	int devices;
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(&devices)[0]);
	void *pd = ibv_alloc_pd(context);
	char *src = calloc(BATCH, LEN), *dst = calloc(BATCH, LEN);
	struct ibv_mr *from = ibv_reg_mr(pd, src, BATCH * LEN, 5), *to = ibv_reg_mr(pd, dst, BATCH * LEN, 5);
	struct ibv_cq *cq = ibv_create_cq(context, 513, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .max_send_wr = 256, .qp_type = RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	for (long b = 0; b < batches; b++) {
		uint64_t last = b * BATCH + BATCH - 1, ended = 0;

		for (int i = 0; i < BATCH; i++) {
			sges[i] = (struct ibv_sge){.addr = (uint64_t)(dst + i * LEN), .length = LEN, .lkey = to->lkey};
			wrs[i].wr_id = b * BATCH + i;
			wrs[i].next = i + 1 < BATCH ? &wrs[i + 1] : NULL;
			wrs[i].sg_list = &sges[i];
			wrs[i].num_sge = 1;
			wrs[i].opcode = RDMA_READ;
			wrs[i].send_flags = all || i + 1 == BATCH ? SIGNALED : 0;
			wrs[i].remote_addr = (uint64_t)(src + i * LEN);
			wrs[i].rkey = from->rkey;
		}
		if (qp->context->ops.post_send(qp, wrs, &bad) != 0) {
			return 1;
		}
		while (ended != last) {
			int number = cq->context->ops.poll_cq(cq, 16, completions);

			for (int i = 0; i < number; i++) {
				if (completions[i].status != 0) {
					return 1;
				}
				ended = completions[i].wr_id;
			}
		}
	}
	return 0;
}
