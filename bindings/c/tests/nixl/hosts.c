// Random transfers between two hosts, each with an agent in NIXL's wheel, by its C interface:
//
//   hosts 1|2 ADDRESS ROUNDS [OPTION=VALUE...]    OPTION: of the backend; ADDRESS: of the first host
//
// The hosts take turns in starting a transfer of 1 to 64 pieces, or of all memory. Each transfer sends a notification, and
// then each host compares all its memory with the expected bytes. At last the first host's process is killed by a signal,
// and transfers of the second host must fail. Exits with 3 if the first host does not listen yet.
#define _GNU_SOURCE
#include "wheel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

int nixl_capi_opt_args_set_notif_msg(object args, const void *data, size_t len);
int nixl_capi_opt_args_set_has_notif(object args, bool has);
int nixl_capi_create_notif_map(object *map);
int nixl_capi_destroy_notif_map(object map);
int nixl_capi_get_notifs(object agent, object map, object args);
int nixl_capi_notif_map_size(object map, size_t *size);
int nixl_capi_notif_map_get_notifs_size(object map, const char *agent, size_t *size);
int nixl_capi_notif_map_get_notif(object map, const char *agent, size_t index, const void **data, size_t *len);

enum { BLOCK = 8 << 10, BLOCKS = 128, LEN = BLOCK * BLOCKS, MAX_PIECES = 64, PORT = 7100 };
static const char *const NAMES[] = {"first", "second"};

// What both hosts know of one transfer, because they draw the same numbers.
struct plan {
    int operation;
    size_t pieces;
    struct {
        size_t from, to, len; // `from`: of the host that starts the transfer
    } piece[MAX_PIECES];
};

static size_t random_below(size_t limit) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % limit;
}

static void shuffle(size_t *blocks) {
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t other = random_below(i + 1);
        blocks[i] = blocks[other];
        blocks[other] = i;
    }
}

static struct plan next_plan(void) {
    static const size_t LENGTHS[] = {64, 4096, BLOCK};
    size_t from[BLOCKS], to[BLOCKS];
    struct plan plan = {.operation = random_below(2) ? WRITE : READ};
    if (random_below(8) == 0) {
        plan.pieces = 1;
        plan.piece[0].len = LEN;
        return plan;
    }
    plan.pieces = 1 + random_below(MAX_PIECES);
    shuffle(from);
    shuffle(to);
    for (size_t i = 0; i < plan.pieces; i++) {
        size_t len = 1 + random_below(LENGTHS[random_below(3)]);
        plan.piece[i].len = len;
        plan.piece[i].from = from[i] * BLOCK + random_below(BLOCK - len + 1);
        plan.piece[i].to = to[i] * BLOCK + random_below(BLOCK - len + 1);
    }
    return plan;
}

// Waits until this host has one notification, which must be `wanted`.
static void expect_notification(object agent, const char *peer, const char *wanted) {
    size_t agents = 0, count;
    object map;
    EXPECT(nixl_capi_create_notif_map(&map) == 0);
    while (agents == 0) {
        EXPECT(nixl_capi_get_notifs(agent, map, NULL) == 0 && nixl_capi_notif_map_size(map, &agents) == 0);
    }
    const void *data;
    size_t len;
    EXPECT(agents == 1 && nixl_capi_notif_map_get_notifs_size(map, peer, &count) == 0 && count == 1);
    EXPECT(nixl_capi_notif_map_get_notif(map, peer, 0, &data, &len) == 0);
    EXPECT(len == strlen(wanted) && memcmp(data, wanted, len) == 0);
    EXPECT(nixl_capi_destroy_notif_map(map) == 0);
}

// Executes a transfer with a notification, and returns its last status.
static int transfer(struct side side, const struct plan *plan, const unsigned char *ours, const unsigned char *theirs, const char *peer, const char *note) {
    object local, remote, request;
    EXPECT(nixl_capi_create_xfer_dlist(DRAM, &local) == 0 && nixl_capi_create_xfer_dlist(DRAM, &remote) == 0);
    for (size_t i = 0; i < plan->pieces; i++) {
        EXPECT(nixl_capi_xfer_dlist_add_desc(local, (uintptr_t)ours + plan->piece[i].from, plan->piece[i].len, 0) == 0);
        EXPECT(nixl_capi_xfer_dlist_add_desc(remote, (uintptr_t)theirs + plan->piece[i].to, plan->piece[i].len, 0) == 0);
    }
    EXPECT(nixl_capi_opt_args_set_has_notif(side.args, true) == 0);
    EXPECT(nixl_capi_opt_args_set_notif_msg(side.args, note, strlen(note)) == 0);
    int status = nixl_capi_create_xfer_req(side.agent, plan->operation, local, remote, peer, &request, side.args);
    if (status == DONE) {
        status = nixl_capi_post_xfer_req(side.agent, request, NULL);
        while (status == IN_PROGRESS) {
            status = nixl_capi_get_xfer_status(side.agent, request);
        }
        (void)nixl_capi_release_xfer_req(side.agent, request);
        (void)nixl_capi_destroy_xfer_req(request);
    }
    EXPECT(nixl_capi_destroy_xfer_dlist(local) == 0 && nixl_capi_destroy_xfer_dlist(remote) == 0);
    return status;
}

static int connected(bool first, const char *address) {
    const int on = 1;
    int made = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    EXPECT(made >= 0 && inet_pton(AF_INET, address, &at.sin_addr) == 1);
    if (!first) {
        if (connect(made, (struct sockaddr *)&at, sizeof at) != 0) {
            exit(3);
        }
        return made;
    }
    EXPECT(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    EXPECT(bind(made, (struct sockaddr *)&at, sizeof at) == 0 && listen(made, 1) == 0);
    return accept(made, NULL, NULL);
}

int main(int argc, char **argv) {
    EXPECT(argc >= 4);
    const size_t me = argv[1][0] == '2', other = 1 - me;
    int link = connected(me == 0, argv[2]);
    EXPECT(link >= 0);
    // The expected bytes of both hosts.
    static unsigned char expected[2][LEN];
    fill(expected[0], LEN, 1);
    fill(expected[1], LEN, 2);
    unsigned char *ours = aligned_alloc(4096, LEN), *theirs;
    EXPECT(ours);
    memcpy(ours, expected[me], LEN);

    struct side side = start(NAMES[me], "DMA", argv + 4, ours, LEN);
    void *data;
    size_t len;
    EXPECT(nixl_capi_get_local_md(side.agent, &data, &len) == 0);
    write_all(link, &ours, sizeof ours);
    write_all(link, &len, sizeof len);
    write_all(link, data, len);
    read_all(link, &theirs, sizeof theirs);
    read_all(link, &len, sizeof len);
    data = malloc(len);
    EXPECT(data);
    read_all(link, data, len);
    char *peer;
    EXPECT(nixl_capi_load_remote_md(side.agent, data, len, &peer) == 0 && strcmp(peer, NAMES[other]) == 0);

    const size_t rounds = strtoul(argv[3], NULL, 10);
    size_t bytes[2] = {0};
    for (size_t round = 0; round < rounds; round++) {
        const size_t starter = round % 2;
        const struct plan plan = next_plan();
        char note[32], token = 0;
        snprintf(note, sizeof note, "round %zu", round);
        for (size_t i = 0; i < plan.pieces; i++) {
            unsigned char *from = expected[starter] + plan.piece[i].from, *to = expected[1 - starter] + plan.piece[i].to;
            memcpy(plan.operation == WRITE ? to : from, plan.operation == WRITE ? from : to, plan.piece[i].len);
            bytes[plan.operation] += plan.piece[i].len;
        }
        if (starter == me) {
            EXPECT(transfer(side, &plan, ours, theirs, peer, note) == DONE);
        } else {
            expect_notification(side.agent, peer, note);
        }
        EXPECT(memcmp(ours, expected[me], LEN) == 0);
        // The next transfer starts after both hosts have compared.
        write_all(link, &token, 1);
        read_all(link, &token, 1);
    }
    printf("%zu transfers between hosts, %zu bytes read, %zu bytes written, 0 wrong\n", rounds, bytes[READ], bytes[WRITE]);
    EXPECT(fflush(stdout) == 0);

    const struct plan whole = {.operation = READ, .pieces = 1, .piece = {{0, 0, LEN}}};
    if (me == 0) {
        expect_notification(side.agent, peer, "end");
        raise(SIGKILL);
    }
    int status = transfer(side, &whole, ours, theirs, peer, "end");
    size_t done = 0;
    while (status == DONE) {
        EXPECT(memcmp(ours, expected[other], LEN) == 0);
        memset(ours, 0, LEN);
        status = transfer(side, &whole, ours, theirs, peer, "after the end");
        done++;
    }
    EXPECT(transfer(side, &whole, ours, theirs, peer, "again") != DONE);
    printf("a killed host: %zu more transfers, then status %d\n", done, status);
    (void)nixl_capi_invalidate_remote_md(side.agent, peer);
    end(side);
    return 0;
}
