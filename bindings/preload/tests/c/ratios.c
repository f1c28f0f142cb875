// Prints how many times as fast as the C library the preloaded library is, in one run: both functions are called in turn,
// and the medians are compared. Cold data was not accessed for a long time; hot data was accessed by the previous call. The
// lines "and read" include one pass of reading over the destination after each call.
//
//   LD_PRELOAD=libdma_memcpy.so ratios [huge|short]     huge: in huge pages; short: the times of calls below the limit
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 128, PAGE = 4096 };
static const size_t POOL = (size_t)512 << 20;

typedef void *copy_function(void *, const void *, size_t);
typedef void *fill_function(void *, int, size_t);
static copy_function *copies[2];
static fill_function *fills[2];
static volatile uint64_t sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void read_back(const char *at, size_t len) {
    uint64_t sum = 0;
    for (size_t i = 0; i < len; i += 64) {
        sum += *(const uint64_t *)(at + i);
    }
    sink += sum;
}

static int compare_times(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

// Prints one line. `fill`: fills instead of copies; `hot`: the same ranges each time; `reads`: reads the destination.
static void line(char *from, char *to, size_t len, int fill, int hot, int reads) {
    static double times[2][ROUNDS];
    size_t at = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int which = 0; which < 2; which++) {
            double start = now();
            if (fill) {
                fills[which](to + at, round, len);
            } else {
                copies[which](to + at, from + at, len);
            }
            if (reads) {
                read_back(to + at, len);
            }
            times[which][round] = now() - start;
            if (!hot) {
                at = at + len + PAGE <= POOL - len ? at + len + PAGE : 0;
            }
        }
    }
    double median[2];
    for (int which = 0; which < 2; which++) {
        // The first rounds are the trials of the library.
        qsort(times[which] + 16, ROUNDS - 16, sizeof(double), compare_times);
        median[which] = times[which][16 + (ROUNDS - 16) / 2];
    }
    printf("%-4s %-4s %-8s %6zu KiB: C library %6.2f GB/s, preloaded %6.2f GB/s, ratio %.2f\n", hot ? "hot" : "cold",
           fill ? "fill" : "copy", reads ? "and read" : "", len >> 10, (double)len / median[0] * 1e-9,
           (double)len / median[1] * 1e-9, median[0] / median[1]);
    fflush(stdout);
}

// Prints the time of a short call. If `len` is 0, the lengths are random, from 0 to 40.
static void short_line(char *from, char *to, size_t len, int fill) {
    enum { CALLS = 1024 };
    static double times[2][8 * ROUNDS];
    static size_t lengths[CALLS];
    uint32_t random = 1;
    for (int call = 0; call < CALLS; call++) {
        random = random * 1664525u + 1013904223u;
        lengths[call] = len ? len : (random >> 16) % 41;
    }
    for (int round = 0; round < 8 * ROUNDS; round++) {
        for (int which = 0; which < 2; which++) {
            double start = now();
            for (int call = 0; call < CALLS; call++) {
                if (fill) {
                    fills[which](to, call, lengths[call]);
                } else {
                    copies[which](to, from, lengths[call]);
                }
            }
            times[which][round] = (now() - start) / CALLS;
        }
    }
    for (int which = 0; which < 2; which++) {
        qsort(times[which], 8 * ROUNDS, sizeof(double), compare_times);
    }
    char name[24] = "0 to 40";
    if (len) {
        snprintf(name, sizeof name, "%zu", len);
    }
    printf("%s of %7s bytes: C library %6.2f ns, preloaded %6.2f ns\n", fill ? "fill" : "copy", name,
           times[0][4 * ROUNDS] * 1e9, times[1][4 * ROUNDS] * 1e9);
    fflush(stdout);
}

int main(int argc, char **argv) {
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    copies[0] = (copy_function *)dlsym(libc, "memcpy");
    copies[1] = (copy_function *)dlsym(RTLD_DEFAULT, "memcpy");
    fills[0] = (fill_function *)dlsym(libc, "memset");
    fills[1] = (fill_function *)dlsym(RTLD_DEFAULT, "memset");
    if (!copies[0] || copies[0] == copies[1]) {
        fputs("the library is not preloaded\n", stderr);
        return 2;
    }
    char *from = mmap(NULL, 2 * POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED) {
        return 2;
    }
    madvise(from, 2 * POOL, argc > 1 && !strcmp(argv[1], "huge") ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    fills[0](from, 1, 2 * POOL);
    char *to = from + POOL;
    if (argc > 1 && !strcmp(argv[1], "short")) {
        static const size_t LENGTHS[] = {0, 1, 3, 8, 24, 32, 64, 256, 1024, 4096};
        for (int fill = 0; fill < 2; fill++) {
            for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
                short_line(from, to, LENGTHS[i], fill);
            }
        }
        return 0;
    }
    for (int hot = 0; hot < 2; hot++) {
        for (size_t len = (size_t)1 << 20; len <= (size_t)16 << 20; len *= 4) {
            for (int fill = 0; fill < 2; fill++) {
                line(from, to, len, fill, hot, 0);
                line(from, to, len, fill, hot, 1);
            }
        }
    }
    return 0;
}
