// Loads and unloads the library given as the argument, and copies before, in between and after.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { LEN = 3 << 20 };
static char from[LEN], to[LEN];

static int copies(int round) {
    memset(from, round, LEN);
    memcpy(to, from, LEN);
    for (int i = 0; i < LEN; i++) {
        if (to[i] != (char)round) {
            return 0;
        }
    }
    return memcmp(to, from, LEN) == 0;
}

int main(int argc, char **argv) {
    for (int round = 0; argc > 1 && round < 20; round++) {
        void *library = dlopen(argv[1], round % 2 ? RTLD_NOW | RTLD_GLOBAL : RTLD_LAZY);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        void *(*copy)(void *, const void *, size_t) = (void *(*)(void *, const void *, size_t))dlsym(library, "memcpy");
        if (!copies(round) || !copy || copy(to, from + 1, LEN - 1) != to || dlclose(library) != 0 || !copies(round + 1)) {
            return 1;
        }
    }
    puts(copies(3) && copies(4) ? "copied" : "wrong bytes");
    return 0;
}
