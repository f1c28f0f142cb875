// Times prepared transfers by one backend, in NIXL's wheel, by its C interface. figures.py compares two backends.
//
//   figures BACKEND [OPTION=VALUE...]
//
// Prints lines "WHERE OPERATION PIECES BYTES NANOSECONDS": the median time of one transfer, from the call that posts it to
// the call that returns that it is done. The pieces are not adjacent. The first and the last transfer of each kind are
// verified, with all bytes between the pieces.
#define _GNU_SOURCE
#include "wheel.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { KIB = 1024, MIB = KIB * KIB, GAP = 4 * KIB, MAX_TIMES = 1001 };
static const struct {
    size_t pieces, len;
} KINDS[] = {{1, 4 * KIB},       {1, 16 * KIB},     {1, 64 * KIB},    {64, 4 * KIB},     {64, 16 * KIB},
             {64, 64 * KIB},     {1024, 4 * KIB},   {1024, 16 * KIB}, {1024, 64 * KIB}, {1, 64 * MIB}};
static const size_t LEN = (size_t)1024 * (64 * KIB + GAP);

static object list_of(const unsigned char *memory, size_t pieces, size_t len) {
    object list;
    EXPECT(nixl_capi_create_xfer_dlist(DRAM, &list) == 0);
    for (size_t piece = 0; piece < pieces; piece++) {
        EXPECT(nixl_capi_xfer_dlist_add_desc(list, (uintptr_t)memory + piece * (len + GAP), len, 0) == 0);
    }
    return list;
}

// Executes a prepared transfer, and returns its time in nanoseconds.
static double transfer(struct side side, object request) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    int status = nixl_capi_post_xfer_req(side.agent, request, NULL);
    while (status == IN_PROGRESS) {
        status = nixl_capi_get_xfer_status(side.agent, request);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    EXPECT(status == DONE);
    return (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
}

// Executes a transfer, and verifies it.
static void verify(struct side side, object request, const unsigned char *source, unsigned char *destination, size_t pieces, size_t len) {
    memset(destination, 0x5a, LEN);
    transfer(side, request);
    for (size_t at = 0, piece = 0; at < LEN; piece++, at += len + GAP) {
        size_t copied = piece < pieces ? len : 0;
        EXPECT(memcmp(source + at, destination + at, copied) == 0);
        for (size_t gap = at + copied; gap < LEN && (piece >= pieces || gap < at + len + GAP); gap++) {
            EXPECT(destination[gap] == 0x5a);
        }
        if (piece >= pieces) {
            break;
        }
    }
}

static int compare_times(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static void measure(struct side side, const char *where, unsigned char *ours, unsigned char *theirs, const char *peer) {
    static double times[MAX_TIMES];
    for (int operation = READ; operation <= WRITE; operation++) {
        unsigned char *source = operation == WRITE ? ours : theirs, *destination = operation == WRITE ? theirs : ours;
        for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++) {
            size_t pieces = KINDS[kind].pieces, len = KINDS[kind].len;
            object local = list_of(ours, pieces, len), remote = list_of(theirs, pieces, len), request;
            EXPECT(nixl_capi_create_xfer_req(side.agent, operation, local, remote, peer, &request, side.args) == 0);
            fill(source, LEN, (unsigned)kind * 2 + 1);
            verify(side, request, source, destination, pieces, len);
            size_t count = (size_t)256 * MIB / (pieces * len);
            count = count < 9 ? 9 : count > MAX_TIMES ? MAX_TIMES : count;
            for (size_t i = 0; i < count; i++) {
                times[i] = transfer(side, request);
            }
            qsort(times, count, sizeof *times, compare_times);
            printf("%s %s %zu %zu %.0f\n", where, operation == WRITE ? "WRITE" : "READ", pieces, len, times[count / 2]);
            fill(source, LEN, (unsigned)kind * 2 + 2);
            verify(side, request, source, destination, pieces, len);
            EXPECT(nixl_capi_release_xfer_req(side.agent, request) == 0);
            nixl_capi_destroy_xfer_req(request);
            EXPECT(nixl_capi_destroy_xfer_dlist(local) == 0 && nixl_capi_destroy_xfer_dlist(remote) == 0);
        }
    }
}

int main(int argc, char **argv) {
    EXPECT(argc >= 2);
    int pair[2][2]; // from the target, and to the target
    EXPECT(pipe(pair[0]) == 0 && pipe(pair[1]) == 0);
    // Both processes map the target's memory, so that this process can verify it.
    unsigned char *theirs = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(theirs != MAP_FAILED);
    pid_t target = fork();
    EXPECT(target >= 0);
    if (target == 0) {
        close(pair[0][0]);
        close(pair[1][1]);
        struct side side = start("target", argv[1], argv + 2, theirs, LEN);
        void *data;
        size_t len;
        EXPECT(nixl_capi_get_local_md(side.agent, &data, &len) == 0);
        write_all(pair[0][1], &len, sizeof len);
        write_all(pair[0][1], data, len);
        // Ends when the other process has closed the pipe.
        char none;
        EXPECT(read(pair[1][0], &none, 1) == 0);
        end(side);
        _exit(0);
    }
    close(pair[0][1]);
    close(pair[1][0]);
    unsigned char *ours = aligned_alloc(GAP, 2 * LEN);
    EXPECT(ours);
    struct side side = start("initiator", argv[1], argv + 2, ours, 2 * LEN);
    size_t len;
    read_all(pair[0][0], &len, sizeof len);
    void *data = malloc(len);
    EXPECT(data);
    read_all(pair[0][0], data, len);
    char *peer;
    EXPECT(nixl_capi_load_remote_md(side.agent, data, len, &peer) == 0);
    measure(side, "within", ours, ours + LEN, "initiator");
    measure(side, "between", ours, theirs, peer);
    EXPECT(nixl_capi_invalidate_remote_md(side.agent, peer) == 0);
    end(side);
    close(pair[1][1]);
    int status;
    EXPECT(waitpid(target, &status, 0) == target && status == 0);
    EXPECT(fflush(stdout) == 0);
    // UCX crashes in its exit handlers.
    _exit(0);
}
