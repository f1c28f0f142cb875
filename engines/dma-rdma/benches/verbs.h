/* The part of rdma-core's `infiniband/verbs.h` that `provider.c` and `instructions.c` use: the same names and layouts. */
#ifndef VERBS_H
#define VERBS_H
#include <stdint.h>
#include <stddef.h>

enum { RDMA_READ = 4, SIGNALED = 2, RC = 2, PORT_ACTIVE = 4, INFINIBAND = 1, NOT_SUPPORTED = 95 };

struct ibv_wc {
	uint64_t wr_id;
	int status, opcode;
	uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge, opcode;
	unsigned int send_flags;
	uint32_t imm_data;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t others[9];
};

struct ibv_cq;
struct ibv_qp;

struct ibv_context {
	void *device;
	struct {
		void *before[11];
		int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
		int (*req_notify_cq)(struct ibv_cq *, int);
		void *between[12];
		int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
		void *behind[6];
	} ops;
	int cmd_fd, async_fd;
};

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context, *pd;
	struct ibv_cq *send_cq, *recv_cq;
	void *srq;
	uint32_t handle, qp_num;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	void *srq;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
	int qp_type, sq_sig_all;
};

struct ibv_mr {
	struct ibv_context *context;
	void *pd, *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

void **ibv_get_device_list(int *number);
struct ibv_context *ibv_open_device(void *device);
void *ibv_alloc_pd(struct ibv_context *context);
struct ibv_mr *ibv_reg_mr(void *pd, void *addr, size_t length, int access);
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *data, struct ibv_comp_channel *channel, int vector);
struct ibv_qp *ibv_create_qp(void *pd, struct ibv_qp_init_attr *attr);
#endif
