// A program for DSA that was not written for the stand-in. The kernel maps wq0.0, but not wq0.1.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

struct descriptor {
    uint32_t pasid, command;
    uint64_t record, src, dst;
    uint32_t len, rest[7];
} __attribute__((aligned(64)));

static volatile uint8_t record[64] __attribute__((aligned(64)));
static char from[5000], to[5000];
static sigjmp_buf back;
static volatile sig_atomic_t faults;

static void fault(int signal) {
    (void)signal;
    faults++;
    siglongjmp(back, 1);
}

static struct descriptor copy(void) {
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)(i * 7 + 1);
    memset(to, 0, sizeof to);
    record[0] = 0;
    struct descriptor d = {.command = 3u << 24 | 4 | 8,
                           .record = (uint64_t)(uintptr_t)record,
                           .src = (uint64_t)(uintptr_t)from,
                           .dst = (uint64_t)(uintptr_t)to,
                           .len = sizeof from};
    return d;
}

static void wait_for_record(void) {
    while (record[0] == 0)
        usleep(100);
}

static void arrives(void) {
    wait_for_record();
    CHECK(record[0] == 1 && memcmp(from, to, sizeof from) == 0);
}

// MOVDIR64B, written as bytes for assemblers that do not know it.
static void store(void *portal, struct descriptor *d) {
    __asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x02" : : "a"(portal), "d"(d) : "memory");
}

// MOVDIR64B with the prefix LOCK, which makes it undefined on every processor, like MOVDIR64B on a processor that
// lacks it.
static void store_undefined(void *portal, struct descriptor *d) {
    __asm__ volatile(".byte 0xf0, 0x66, 0x0f, 0x38, 0xf8, 0x02" : : "a"(portal), "d"(d) : "memory");
}

// An alternate stack with room for little more than the frame of one signal, with no mapping below it.
static void alternate_stack(void) {
    size_t size = getauxval(AT_MINSIGSTKSZ) + 4096, room = (size + 8191) & ~4095ul;
    char *pages = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages, 4096) == 0);
    stack_t stack = {.ss_sp = pages + 4096, .ss_size = size};
    CHECK(sigaltstack(&stack, NULL) == 0);
}

int main(void) {
    // The alarm ends the program if it hangs.
    alarm(300);
    alternate_stack();
    CHECK(signal(SIGSEGV, fault) == SIG_DFL);
    FILE *mode = fopen("/sys/bus/dsa/devices/wq0.0/mode", "r");
    char text[20];
    CHECK(mode && fgets(text, sizeof text, mode) && strcmp(text, "dedicated\n") == 0);
    fclose(mode);
    CHECK(access("/dev/dsa/wq0.2", F_OK) == -1 && errno == ENOENT);
    CHECK(access("/dev/dsax", F_OK) == -1);

    int fd = open("/dev/dsa/wq0.0", O_RDWR);
    CHECK(fd >= 0);
    CHECK(mmap(NULL, 8192, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    void *portal = mmap(NULL, 4096, PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    CHECK(portal != MAP_FAILED);

    // A dedicated work queue has only one client, until the client closes the file and unmaps the portal.
    CHECK(open("/dev/dsa/wq0.0", O_RDWR) == -1 && errno == EBUSY);
    close(fd);
    CHECK(open("/dev/dsa/wq0.0", O_RDWR) == -1 && errno == EBUSY);
    munmap(portal, 4096);
    fd = open("/dev/dsa/wq0.0", O_RDWR);
    CHECK(fd >= 0);
    close(fd);

    // SPDK opens the work queue by its device numbers.
    unsigned major, minor;
    FILE *number = fopen("/sys/bus/dsa/devices/dsa0/cdev_major", "r");
    CHECK(number && fscanf(number, "%u", &major) == 1 && fclose(number) == 0);
    number = fopen("/sys/bus/dsa/devices/wq0.0/cdev_minor", "r");
    CHECK(number && fscanf(number, "%u", &minor) == 1 && fclose(number) == 0);
    char path[40];
    snprintf(path, sizeof path, "/dev/char/%u:%u", major, minor);
    fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    CHECK(open("/dev/dsa/wq0.0", O_RDWR) == -1 && errno == EBUSY);
    portal = mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(portal != MAP_FAILED);
    CHECK(open("/dev/char/0:99", O_RDWR) == -1 && errno == ENOENT);
    struct descriptor d = copy();
    store(portal, &d);
    arrives();
    d = copy();
    store_undefined(portal, &d);
    arrives();

    // A thread may block all signals.
    sigset_t all, before;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
    d = copy();
    store(portal, &d);
    arrives();
    CHECK(sigprocmask(SIG_SETMASK, NULL, &all) == 0 && sigismember(&all, SIGALRM) == 1);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);

    int written = open("/dev/dsa/wq0.1", O_RDWR);
    CHECK(written >= 0);
    CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, written, 0) == MAP_FAILED && errno == EPERM);
    d = copy();
    CHECK(write(written, &d, sizeof d) == sizeof d);
    arrives();
    // Programs stop using the device if a descriptor has not ended after some number of pauses; DTO does so after
    // 10,000. A descriptor may need longer if the machine takes the processor from the stand-in's thread.
    int misses = 0;
    for (int n = 0; n < 1000; n++) {
        record[0] = 0;
        d = (struct descriptor){.command = 4 | 8, .record = d.record};
        CHECK(write(written, &d, sizeof d) == sizeof d);
        for (int pauses = 0; record[0] == 0 && pauses < 10000; pauses++)
            __builtin_ia32_pause();
        misses += record[0] == 0;
        wait_for_record();
        CHECK(record[0] == 1);
    }
    CHECK(misses < 100);
    d.command = 1u << 24 | 4 | 8;
    CHECK(write(written, &d, sizeof d) == -1 && errno == EINVAL);
    // A pointer without memory is an error, as in the kernel. Descriptors before it are submitted.
    char *last = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(last != MAP_FAILED && munmap(last + 4096, 4096) == 0);
    CHECK(write(written, last + 4096, sizeof d) == -1 && errno == EFAULT);
    d = copy();
    memcpy(last + 4096 - sizeof d, &d, sizeof d);
    CHECK(write(written, last + 4096 - sizeof d, 2 * sizeof d) == sizeof d);
    arrives();

    // A forked child has no thread of the stand-in.
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        d = copy();
        store(portal, &d);
        arrives();
        // The device meets a page fault.
        char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        d = copy();
        d.src = (uint64_t)(uintptr_t)page;
        store(portal, &d);
        CHECK(record[0] == 3);
        stack_t stack;
        CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == 0 && stack.ss_size > 4096);
        _exit(7);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);

    // This program's own faults reach its own handler.
    CHECK(faults == 0);
    munmap(portal, 4096);
    if (sigsetjmp(back, 1) == 0) {
        store(portal, &d);
        CHECK(!"a store to no mapping goes on");
    }
    CHECK(faults == 1);
    CHECK(signal(SIGSEGV, SIG_DFL) == fault);
    puts("program: all as it should be");
    return 0;
}
