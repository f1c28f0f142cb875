// The preloaded functions in each situation that a program may call them in. Built without the compiler's own memcpy.
//
//   LD_PRELOAD=libdma_memcpy.so DMA_MEMCPY=engine=cpu,min=64K every_case [SITUATION]
//
// Prints the name of each situation that passed, and "not preloaded" if the C library's own functions were called.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, LONG = 300 * 1000 };

extern void *__memcpy_chk(void *, const void *, size_t, size_t);
extern void *__memmove_chk(void *, const void *, size_t, size_t);
extern void *__memset_chk(void *, int, size_t, size_t);

static void check(int condition, const char *what) {
    if (!condition) {
        printf("FAILED: %s\n", what);
        fflush(stdout);
        _exit(1);
    }
}

static uint32_t random_state = 1;
static uint32_t random_number(uint32_t below) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

// Byte loops that call no function.
static void pattern(volatile unsigned char *at, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++) {
        at[i] = (unsigned char)(i * 7 + (i >> 8) + seed);
    }
}
static int is_pattern(const volatile unsigned char *at, size_t len, unsigned seed, size_t from) {
    for (size_t i = 0; i < len; i++) {
        if (at[i] != (unsigned char)((from + i) * 7 + ((from + i) >> 8) + seed)) {
            return 0;
        }
    }
    return 1;
}
static int is_filled(const volatile unsigned char *at, size_t len, int byte) {
    for (size_t i = 0; i < len; i++) {
        if (at[i] != (unsigned char)byte) {
            return 0;
        }
    }
    return 1;
}

static unsigned char *pages(size_t len) {
    unsigned char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, "memory");
    return at;
}

// ---- before constructors: preinit_array runs before the constructors of all libraries

static unsigned char early[3 * 4096];
static int early_result;
static void before_constructors(void) {
    pattern(early, 4096, 3);
    int right = memcpy(early + 4096, early, 4096) == early + 4096 && is_pattern(early + 4096, 4096, 3, 0);
    memmove(early + 4096 + 5, early + 4096, 1000);
    right &= is_pattern(early + 4096 + 5, 1000, 3, 0);
    memmove(early + 4096, early + 4096 + 5, 1000);
    right &= is_pattern(early + 4096, 1000, 3, 0);
    right &= memset(early + 8192, 9, 4096) == early + 8192 && is_filled(early + 8192, 4096, 9);
    right &= memcmp(early, early + 4096, 1000) == 0 && memcmp(early, early + 4096, 0) == 0;
    early[500]++;
    right &= memcmp(early, early + 4096, 1000) > 0 && memcmp(early + 4096, early, 1000) < 0;
    right &= bcmp(early, early + 4096, 1000) != 0 && bcmp(early, early + 4096, 500) == 0;
    early_result = right;
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(void) = before_constructors;

static void constructors(void) { check(early_result, "calls before constructors"); }

// ---- contents

static void contents(void) {
    enum { ROOM = 700 * 1000, GUARD = 128 };
    unsigned char *a = pages(ROOM + 2 * PAGE), *b = pages(ROOM + 2 * PAGE);
    for (int round = 0; round < 120; round++) {
        size_t len = round % 3 ? random_number(ROOM - 2 * PAGE - 2 * GUARD) : random_number(3) * 65536 + random_number(200);
        unsigned char *from = a + GUARD + random_number(PAGE), *to = b + GUARD + random_number(PAGE);
        pattern(from, len, (unsigned)round);
        memset(to - GUARD, 0xa5, len + 2 * GUARD);
        check(is_filled(to - GUARD, len + 2 * GUARD, 0xa5), "memset fills");
        void *end;
        switch (round % 4) {
        case 0: end = memcpy(to, from, len); break;
        case 1: end = memmove(to, from, len); break;
        case 2: end = __memcpy_chk(to, from, len, len); break;
        default: end = __memmove_chk(to, from, len, (size_t)-1);
        }
        check(end == to && is_pattern(to, len, (unsigned)round, 0), "the copied bytes");
        check(is_filled(to - GUARD, GUARD, 0xa5) && is_filled(to + len, GUARD, 0xa5), "no other bytes");
        check(memcmp(to, from, len) == 0 && bcmp(to, from, len) == 0, "equal bytes");
        if (len > 0) {
            size_t at = random_number((uint32_t)len);
            to[at] = (unsigned char)(from[at] + 1);
            int greater = to[at] > from[at];
            check((memcmp(to, from, len) > 0) == greater && (memcmp(from, to, len) < 0) == greater, "the first difference");
            check(memcmp(to, from, at) == 0 && bcmp(to, from, len) != 0, "no difference before it");
        }
        check(__memset_chk(to, round, len, len) == to && is_filled(to, len, round), "the filled bytes");
        check(is_filled(to - GUARD, GUARD, 0xa5) && is_filled(to + len, GUARD, 0xa5), "no other bytes are filled");
    }
    // Overlapping ranges, for memcpy as well: old programs call a memcpy that permits it.
    for (int round = 0; round < 60; round++) {
        size_t len = 60000 + random_number(400 * 1000), by = 1 + random_number(round % 2 ? 200 : 100 * 1000);
        pattern(a, len + by, 1);
        (round % 3 ? memmove : memcpy)(a + by, a, len);
        check(is_pattern(a + by, len, 1, 0), "upwards into itself");
        pattern(a, len + by, 2);
        (round % 3 ? memmove : memcpy)(a, a + by, len);
        check(is_pattern(a, len, 2, by), "downwards into itself");
        check(memmove(a, a, len) == a && is_pattern(a, len, 2, by), "onto itself");
    }
    munmap(a, ROOM + 2 * PAGE);
    munmap(b, ROOM + 2 * PAGE);
}

// Copies of a few bytes, at both ends of a page whose neighbours cannot be accessed, and overlapping by each distance.
static void short_copies(void) {
    enum { MAX = 96 };
    unsigned char *from = pages(3 * PAGE), *to = pages(3 * PAGE), *both = pages(PAGE);
    for (int side = 0; side < 3; side += 2) {
        check(mprotect(from + side * PAGE, PAGE, PROT_NONE) == 0 && mprotect(to + side * PAGE, PAGE, PROT_NONE) == 0, "mprotect");
    }
    for (int place = 0; place < 4; place++) {
        for (size_t len = 0; len <= MAX; len++) {
            unsigned char *src = from + (place & 1 ? PAGE : 2 * PAGE - len), *dst = to + (place & 2 ? PAGE : 2 * PAGE - len);
            pattern(src, len, (unsigned)len);
            for (int which = 0; which < 2; which++) {
                for (size_t at = 0; at < PAGE; at++) {
                    *(volatile unsigned char *)(to + PAGE + at) = 0xa5;
                }
                check((which ? memmove : memcpy)(dst, src, len) == dst, "the result of a short copy");
                size_t before = (size_t)(dst - to) - PAGE;
                check(is_pattern(dst, len, (unsigned)len, 0), "a short copy");
                check(is_filled(to + PAGE, before, 0xa5) && is_filled(dst + len, PAGE - before - len, 0xa5), "nothing beside it");
            }
        }
    }
    for (size_t len = 0; len <= MAX; len++) {
        for (size_t at = 0; at <= 2 * MAX; at++) {
            for (int which = 0; which < 2; which++) {
                pattern(both, PAGE, 4);
                (which ? memmove : memcpy)(both + at, both + MAX, len);
                check(is_pattern(both, at, 4, 0) && is_pattern(both + at, len, 4, MAX), "a short copy into itself");
                check(is_pattern(both + at + len, 4 * MAX - at - len, 4, at + len), "nothing behind it");
            }
        }
    }
    munmap(from, 3 * PAGE);
    munmap(to, 3 * PAGE);
    munmap(both, PAGE);
}

// ---- faults

static sigjmp_buf escape;
static volatile sig_atomic_t fault_signal, fault_code;
static void *volatile fault_address;
static pid_t volatile fault_thread;
static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    fault_signal = signal;
    fault_code = info->si_code;
    fault_address = info->si_addr;
    fault_thread = (pid_t)syscall(SYS_gettid);
    siglongjmp(escape, 1);
}
static void catch_faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

typedef void *copy_function(void *, const void *, size_t);
typedef void *fill_function(void *, int, size_t);

// The fault must have the address `bad`, in this thread. The C library's function `plain` has the same one where it
// copies upwards; it is counted.
static int same, compared;
static void expect_fault(copy_function *copy, copy_function *plain, fill_function *fill, fill_function *plain_fill,
                         unsigned char *to, unsigned char *from, size_t len, unsigned char *bad, int signal) {
    void *volatile address = NULL;
    volatile int code = 0;
    for (volatile int which = 0; which < 2; which++) {
        fault_signal = 0;
        if (!sigsetjmp(escape, 1)) {
            if (fill) {
                (which ? plain_fill : fill)(to, 1, len);
            } else {
                (which ? plain : copy)(to, from, len);
            }
            check(0, "an access that must fault");
        }
        check(fault_thread == (pid_t)syscall(SYS_gettid), "the fault is one of the calling thread");
        check(fault_signal == signal, "the signal");
        if (which == 0) {
            address = fault_address;
            code = fault_code;
            if (address != bad) {
                printf("fault at %p, expected %p; to %p from %p\n", address, (void *)bad, (void *)to, (void *)from);
            }
            check(address == bad, "the address of the fault");
        } else {
            check(fault_code == code, "the code of the signal");
            same += fault_address == address;
            compared++;
        }
    }
}

static void faults(void) {
    enum { PAGES = 200 };
    catch_faults();
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    copy_function *plain = (copy_function *)dlsym(libc, "memcpy");
    fill_function *plain_fill = (fill_function *)dlsym(libc, "memset");
    unsigned char *a = pages(PAGES * PAGE), *b = pages(PAGES * PAGE);
    memset(a, 1, PAGES * PAGE);
    memset(b, 1, PAGES * PAGE);
    for (int round = 0; round < 300; round++) {
        unsigned char *from = a + random_number(2 * PAGE), *to = b + random_number(2 * PAGE);
        size_t len = (size_t)(PAGES - 4) * PAGE - random_number(2 * PAGE);
        if (round % 5 == 0) {
            to = b + (from - a) % PAGE; // the pages begin at the same places
        } else if (round % 5 == 1) {
            to = b + (from - a + random_number(130)) % PAGE; // nearly
        }
        // A page of one range, behind the first one.
        unsigned char *base = round % 2 ? a : b, *start = round % 2 ? from : to;
        unsigned char *bad = base + (size_t)(3 + random_number(PAGES - 12)) * PAGE;
        size_t bad_len = round % 3 ? PAGE : (size_t)(base + PAGES * PAGE - bad);
        int access = round % 2 ? PROT_NONE : random_number(2) ? PROT_READ : PROT_NONE;
        check(mprotect(bad, bad_len, access) == 0 && bad > start, "a protected page");
        expect_fault(memcpy, plain, NULL, NULL, to, from, len, bad, SIGSEGV);
        expect_fault(memmove, plain, NULL, NULL, to, from, len, bad, SIGSEGV);
        if (round % 2 == 0) {
            expect_fault(NULL, NULL, memset, plain_fill, to, NULL, len, bad, SIGSEGV);
        }
        mprotect(bad, bad_len, PROT_READ | PROT_WRITE);
    }
    // A page of each range, less than a line apart: the first one counts.
    for (int round = 0; round < 100; round++) {
        unsigned apart = 1 + random_number(62), before = 64 * (1 + random_number(50));
        unsigned char *first = (round % 2 ? a : b) + 80 * PAGE, *second = (round % 2 ? b : a) + 80 * PAGE;
        mprotect(first, PAGE, PROT_NONE);
        mprotect(second, PAGE, PROT_NONE);
        // The page of `second` begins `apart` bytes behind that of `first`.
        unsigned char *one = first - 70 * PAGE - before, *other = second - 70 * PAGE - before - apart;
        expect_fault(memcpy, plain, NULL, NULL, round % 2 ? other : one, round % 2 ? one : other, 100 * PAGE, first, SIGSEGV);
        mprotect(first, PAGE, PROT_READ | PROT_WRITE);
        mprotect(second, PAGE, PROT_READ | PROT_WRITE);
    }
    // No mapping, at the end of each range.
    munmap(a + (PAGES - 1) * PAGE, PAGE);
    munmap(b + (PAGES - 1) * PAGE, PAGE);
    for (int round = 0; round < 40; round++) {
        size_t len = 100 * PAGE + random_number(PAGE);
        unsigned char *a_end = a + (PAGES - 1) * PAGE, *b_end = b + (PAGES - 1) * PAGE;
        size_t over = 1 + random_number(PAGE - 1);
        expect_fault(memcpy, plain, NULL, NULL, b + random_number(PAGE), a_end - len + over, len, a_end, SIGSEGV);
        expect_fault(memcpy, plain, NULL, NULL, b_end - len + over, a + random_number(PAGE), len, b_end, SIGSEGV);
    }
    // A file that is shorter than its mapping.
    FILE *file = tmpfile();
    check(file && ftruncate(fileno(file), 90 * PAGE) == 0, "a file");
    unsigned char *mapped = mmap(NULL, 120 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    check(mapped != MAP_FAILED, "a mapped file");
    expect_fault(memcpy, plain, NULL, NULL, b + 100, mapped + 7, 110 * PAGE, mapped + 90 * PAGE, SIGBUS);
    expect_fault(memcpy, plain, NULL, NULL, mapped + 7, a + 100, 110 * PAGE, mapped + 90 * PAGE, SIGBUS);
    // Comparisons do not read behind the first difference, beyond what the C library reads.
    unsigned char *end = a + (PAGES - 1) * PAGE - 100 * PAGE;
    memset(end, 1, 100 * PAGE);
    memset(b, 1, 100 * PAGE);
    end[100] = 2;
    check(memcmp(end, b, 150 * PAGE) > 0, "a difference before the end of the memory");
    // A length beyond the address space.
    for (int which = 0; which < 2; which++) {
        if (!sigsetjmp(escape, 1)) {
            (which ? memmove : memcpy)(b, a, (size_t)-1 - (size_t)which);
            check(0, "too long a copy");
        }
    }
    printf("%d of %d faults have the address of the C library's\n", same, compared);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    munmap(a, PAGES * PAGE);
    munmap(b, PAGES * PAGE);
    munmap(mapped, 120 * PAGE);
}

// ---- memory that another thread takes away

static unsigned char *shared_from;
static _Atomic int stage;
static void *take_away(void *unused) {
    (void)unused;
    for (int round = 0; round < 200; round++) {
        while (stage != 2 * round + 1) {
            sched_yield();
        }
        for (volatile uint32_t spin = random_number(20000); spin > 0; spin--) {
        }
        mprotect(shared_from + 40 * PAGE, 40 * PAGE, PROT_NONE);
        stage = 2 * round + 2;
    }
    return NULL;
}
static void unmapped(void) {
    pthread_t thread;
    catch_faults();
    shared_from = pages(80 * PAGE);
    unsigned char *to = pages(80 * PAGE);
    check(pthread_create(&thread, NULL, take_away, NULL) == 0, "a thread");
    for (volatile int round = 0; round < 200; round++) {
        mprotect(shared_from, 80 * PAGE, PROT_READ | PROT_WRITE);
        stage = 2 * round + 1;
        if (!sigsetjmp(escape, 1)) {
            for (;;) {
                memcpy(to, shared_from, 80 * PAGE);
            }
        }
        unsigned char *address = fault_address;
        check(fault_thread == (pid_t)syscall(SYS_gettid), "the fault comes to the copying thread");
        check(address >= shared_from + 40 * PAGE && address < shared_from + 80 * PAGE, "the fault is in the pages taken away");
        while (stage != 2 * round + 2) {
            sched_yield();
        }
    }
    pthread_join(thread, NULL);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
}

// ---- signal handlers that copy, and that leave the copy they interrupt

enum { SIGNALS = 200 };
static unsigned char *handler_from, *handler_to;
static _Atomic int handled;
static volatile sig_atomic_t may_leave;
static sigjmp_buf left;
static void on_signal(int signal) {
    (void)signal;
    int number = ++handled;
    pattern(handler_from, 70000, (unsigned)number);
    memcpy(handler_to, handler_from, 70000);
    check(is_pattern(handler_to, 70000, (unsigned)number, 0), "a copy in a signal handler");
    memset(handler_to, number, 70000);
    check(is_filled(handler_to, 70000, number), "a fill in a signal handler");
    if (may_leave && number % 3 == 0) {
        siglongjmp(left, 1);
    }
}
static pthread_t main_thread;
static void *send_signals(void *unused) {
    (void)unused;
    for (int number = 1; number <= SIGNALS; number++) {
        pthread_kill(main_thread, SIGUSR1);
        while (handled < number) {
            sched_yield();
        }
    }
    return NULL;
}
static void signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    handler_from = pages(80000);
    handler_to = pages(80000);
    unsigned char *from[] = {pages(LONG), pages(LONG)}, *to = pages(LONG);
    pattern(from[0], LONG, 0);
    pattern(from[1], LONG, 1);
    main_thread = pthread_self();
    pthread_t thread;
    check(pthread_create(&thread, NULL, send_signals, NULL) == 0, "a thread");
    // Nearly all signals interrupt a copy, because only interrupted copies are checked. Copies of two patterns alternate, so
    // that no byte of an earlier copy is right.
    for (volatile unsigned round = 0; handled < SIGNALS; round++) {
        int before = handled;
        if (sigsetjmp(left, 1)) {
            may_leave = 0;
            continue; // what the copy has written is unspecified
        }
        may_leave = 1;
        memcpy(to, from[round % 2], LONG);
        may_leave = 0;
        if (handled != before) {
            check(is_pattern(to, LONG, round % 2, 0), "a copy that signals interrupt");
        }
    }
    pthread_join(thread, NULL);
}

// ---- forked children, and threads that end

static unsigned char *fork_from, *fork_to;
static void make_ranges(void) {
    fork_from = pages(LONG);
    fork_to = pages(LONG);
    pattern(fork_from, LONG, 5);
}
static void in_child(void) {
    unsigned char *more = pages(LONG);
    memcpy(fork_to, fork_from, LONG);
    memcpy(more, fork_to, LONG);
    check(is_pattern(fork_to, LONG, 5, 0) && is_pattern(more, LONG, 5, 0), "a copy in a child");
    memset(more, 4, LONG);
    check(is_filled(more, LONG, 4) && memcmp(fork_to, fork_from, LONG) == 0, "a fill in a child");
}
static _Atomic int stop;
static void *copy_always(void *unused) {
    unsigned char *to = pages(LONG);
    (void)unused;
    while (!stop) {
        memcpy(to, fork_from, LONG);
        check(is_pattern(to, 100, 5, 0), "a copy beside forks");
    }
    return NULL;
}
static void forks(void) {
    make_ranges();
    pthread_t thread;
    check(pthread_create(&thread, NULL, copy_always, NULL) == 0, "a thread");
    for (int round = 0; round < 60; round++) {
        pid_t child;
        switch (round % 3) {
        case 0: child = fork(); break;
        case 1: child = vfork(); break;
        default: child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); // the C library does not know of it
        }
        if (child == 0) {
            in_child();
            _exit(7);
        }
        int status;
        check(child > 0 && waitpid(child, &status, 0) == child, "a child");
        check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child's end");
    }
    stop = 1;
    pthread_join(thread, NULL);
    in_child();
}
static void *copy_once(void *unused) {
    (void)unused;
    in_child();
    return NULL;
}
static void *copy_until_cancelled(void *to) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    stage++;
    while (stage) {
        memcpy(to, fork_from, LONG);
    }
    return NULL;
}
static void threads(void) {
    make_ranges();
    for (int round = 0; round < 40; round++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, copy_once, NULL) == 0, "a thread");
        pthread_join(thread, NULL);
    }
    unsigned char *to = pages(LONG);
    for (int round = 0; round < 100; round++) {
        pthread_t thread;
        void *result;
        stage = 0;
        check(pthread_create(&thread, NULL, copy_until_cancelled, to) == 0, "a thread");
        while (!stage) {
            sched_yield();
        }
        pthread_cancel(thread);
        pthread_join(thread, &result);
        check(result == PTHREAD_CANCELED, "the thread is cancelled");
        // Nothing writes the memory of a cancelled copy. The pause gives a wrong device time to do so.
        pattern(to, LONG, 8);
        usleep(2000);
        check(is_pattern(to, LONG, 8, 0), "no write after the cancellation");
    }
}

// ---- checks of the compiler

static void overflows(void) {
    for (int which = 0; which < 3; which++) {
        pid_t child = fork();
        if (child == 0) {
            int null = open("/dev/null", O_WRONLY);
            dup2(null, 2);
            unsigned char *to = pages(LONG);
            switch (which) {
            case 0: __memcpy_chk(to, to + 9, LONG, LONG - 1); break;
            case 1: __memmove_chk(to, to + 9, 100, 99); break;
            default: __memset_chk(to, 1, LONG, LONG - 1);
            }
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        check(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "an overflow ends the process");
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} situations[] = {
    {"constructors", constructors}, {"contents", contents}, {"short", short_copies},  {"faults", faults}, {"unmapped", unmapped},
    {"signals", signals},           {"forks", forks},       {"threads", threads},     {"overflows", overflows},
};

int main(int argc, char **argv) {
    if (dlsym(RTLD_DEFAULT, "memcpy") == dlsym(dlopen("libc.so.6", RTLD_NOW), "memcpy")) {
        puts("not preloaded");
    }
    for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
        if (argc < 2 || !strcmp(argv[1], situations[i].name)) {
            situations[i].run();
            printf("%s\n", situations[i].name);
            fflush(stdout);
        }
    }
    return 0;
}
