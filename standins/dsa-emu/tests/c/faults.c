// Instructions that store 64 bytes, and that wait for a store, on ordinary memory: they must have the same effect as on a
// processor that has them. Each instruction runs twice. The second time it has the prefix LOCK, which makes it undefined on
// every processor. So the program covers processors with and without the instruction.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

// The instructions are written as bytes, for assemblers that do not know them. Each function has its operands in RAX and
// RDX, and returns the flags.
#define INSTRUCTION(name, bytes)                                               \
    static uint64_t name(uint64_t rax, uint64_t rdx, uint64_t rcx) {           \
        uint64_t flags;                                                        \
        __asm__ volatile(bytes "\n pushfq\n pop %0"                            \
                         : "=r"(flags)                                         \
                         : "a"(rax), "d"(rdx), "c"(rcx)                        \
                         : "memory", "cc");                                    \
        return flags;                                                          \
    }

INSTRUCTION(movdir64b, ".byte 0x66, 0x0f, 0x38, 0xf8, 0x02")
INSTRUCTION(lock_movdir64b, ".byte 0xf0, 0x66, 0x0f, 0x38, 0xf8, 0x02")
INSTRUCTION(enqcmd, ".byte 0xf2, 0x0f, 0x38, 0xf8, 0x02")
INSTRUCTION(lock_enqcmd, ".byte 0xf0, 0xf2, 0x0f, 0x38, 0xf8, 0x02")
INSTRUCTION(enqcmds, ".byte 0xf3, 0x0f, 0x38, 0xf8, 0x02")
INSTRUCTION(lock_enqcmds, ".byte 0xf0, 0xf3, 0x0f, 0x38, 0xf8, 0x02")
INSTRUCTION(umonitor, ".byte 0xf3, 0x0f, 0xae, 0xf0")
INSTRUCTION(lock_umonitor, ".byte 0xf0, 0xf3, 0x0f, 0xae, 0xf0")
// The state is in ECX, the deadline in EDX and EAX.
INSTRUCTION(umwait, ".byte 0xf2, 0x0f, 0xae, 0xf1")
INSTRUCTION(lock_umwait, ".byte 0xf0, 0xf2, 0x0f, 0xae, 0xf1")
INSTRUCTION(tpause, ".byte 0x66, 0x0f, 0xae, 0xf1")
INSTRUCTION(lock_tpause, ".byte 0xf0, 0x66, 0x0f, 0xae, 0xf1")
INSTRUCTION(undefined, "ud2")

typedef uint64_t instruction(uint64_t, uint64_t, uint64_t);

enum { CARRY = 1, ZERO = 0x40 };

static sigjmp_buf back;
static volatile int raised, code;
static void *volatile address;

static void fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    raised = signal;
    CHECK(info->si_signo == signal);
    code = info->si_code;
    address = info->si_addr;
    sigset_t blocked;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
    CHECK(sigismember(&blocked, signal) == 1 && sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGUSR2) == 0);
    siglongjmp(back, 1);
}

// Checks that the instruction raises this signal, with this code and address.
static void faults(int line, instruction run, void *to, const void *from, uint64_t state, int signal, int with, void *at) {
    raised = 0;
    if (sigsetjmp(back, 1) == 0)
        run((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, state);
    if (raised != signal || code != with || address != at) {
        fprintf(stderr, "line %d: signal %d with code %d at %p, and not %d with %d at %p\n", line, raised, code, address,
                signal, with, at);
        exit(1);
    }
}
#define FAULTS(...) faults(__LINE__, __VA_ARGS__)

// Returns the signal that ends a child that runs this function.
static int ends(instruction run, void *to, const void *from) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void set(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR1);
    CHECK(sigaction(signal, &action, NULL) == 0);
}

// Faults whose handler runs on an alternate stack of the usual size, with no mapping below it.
static void alternate_stack(void) {
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages, 4096) == 0);
    stack_t stack = {.ss_sp = pages + 4096, .ss_size = 8192};
    CHECK(sigaltstack(&stack, NULL) == 0);
}

int main(void) {
    // The alarm ends the program if it hangs.
    alarm(300);
    alternate_stack();
    char *pages = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    char *unmapped = pages + 4096, *constant = pages + 2 * 4096, *no_file = pages + 3 * 4096;
    CHECK(munmap(unmapped, 4096) == 0 && mprotect(constant, 4096, PROT_READ) == 0);
    int file = memfd_create("empty", 0);
    CHECK(file >= 0);
    CHECK(mmap(no_file, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == no_file);
    char from[64];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)(i < 4 ? 0 : i);

    // Without a handler, such a fault ends the process.
    CHECK(ends(movdir64b, unmapped, from) == SIGSEGV && ends(lock_movdir64b, unmapped, from) == SIGSEGV);
    CHECK(ends(lock_enqcmd, unmapped, from) == SIGSEGV && ends(lock_movdir64b, no_file, from) == SIGBUS);
    CHECK(ends(lock_umonitor, unmapped, from) == SIGSEGV && ends(undefined, NULL, NULL) == SIGILL);
    CHECK(signal(SIGSEGV, SIG_IGN) == SIG_DFL && ends(lock_movdir64b, unmapped, from) == SIGSEGV);
    CHECK(raise(SIGSEGV) == 0);

    for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
        set(SIGSEGV, flags);
        set(SIGBUS, flags);
        set(SIGILL, flags);
        instruction *stores[] = {movdir64b, lock_movdir64b, enqcmd, lock_enqcmd};
        for (int i = 0; i < 4; i++) {
            FAULTS(stores[i], unmapped + 64, from, 0, SIGSEGV, SEGV_MAPERR, unmapped + 64);
            FAULTS(stores[i], constant + 128, from, 0, SIGSEGV, SEGV_ACCERR, constant + 128);
            FAULTS(stores[i], no_file + 64, from, 0, SIGBUS, BUS_ADRERR, no_file + 64);
            FAULTS(stores[i], pages, unmapped + 8, 0, SIGSEGV, SEGV_MAPERR, unmapped + 8);
            FAULTS(stores[i], pages + 8, from, 0, SIGSEGV, SI_KERNEL, NULL);
            memset(pages, 1, 128);
            uint64_t done = stores[i]((uint64_t)(uintptr_t)(pages + 64), (uint64_t)(uintptr_t)from, 0);
            if (i < 2)
                CHECK(memcmp(pages + 64, from, 64) == 0 && pages[63] == 1);
            else // No device answers, and nothing is written.
                CHECK(done & ZERO && pages[64] == 1 && pages[127] == 1);
        }
        FAULTS(enqcmds, pages, from, 0, SIGSEGV, SI_KERNEL, NULL);
        FAULTS(lock_enqcmds, pages, from, 0, SIGSEGV, SI_KERNEL, NULL);
        FAULTS(umonitor, unmapped, NULL, 0, SIGSEGV, SEGV_MAPERR, unmapped);
        FAULTS(lock_umonitor, unmapped, NULL, 0, SIGSEGV, SEGV_MAPERR, unmapped);
        FAULTS(tpause, NULL, NULL, 2, SIGSEGV, SI_KERNEL, NULL);
        FAULTS(lock_tpause, NULL, NULL, 2, SIGSEGV, SI_KERNEL, NULL);
        FAULTS(lock_umwait, NULL, NULL, 1u << 31, SIGSEGV, SI_KERNEL, NULL);
        raised = 0;
        if (sigsetjmp(back, 1) == 0)
            undefined(0, 0, 0);
        CHECK(raised == SIGILL && code == ILL_ILLOPN);
    }

    // Waits end at their deadline or at the system's limit.
    umonitor((uint64_t)(uintptr_t)pages, 0, 0);
    lock_umonitor((uint64_t)(uintptr_t)pages, 0, 0);
    for (uint64_t state = 0; state <= 1; state++) {
        uint64_t near = __rdtsc() + 1000, far = __rdtsc() + (1ull << 50);
        umwait(near & 0xffffffff, near >> 32, state);
        umwait(far & 0xffffffff, far >> 32, state);
        tpause(far & 0xffffffff, far >> 32, state);
        CHECK(!(lock_umwait(far & 0xffffffff, far >> 32, state) & CARRY));
        CHECK(lock_tpause(far & 0xffffffff, far >> 32, state) & CARRY);
        CHECK(!(lock_tpause(near & 0xffffffff, near >> 32, state) & CARRY) && __rdtsc() >= near);
    }

    // A handler for one signal.
    set(SIGSEGV, SA_RESETHAND);
    FAULTS(lock_movdir64b, unmapped, from, 0, SIGSEGV, SEGV_MAPERR, unmapped);
    CHECK(ends(lock_movdir64b, unmapped, from) == SIGSEGV);
    CHECK(signal(SIGSEGV, SIG_DFL) == SIG_DFL);
    puts("faults: all as it should be");
    return 0;
}
