// A program without a loader.
#include <string.h>

enum { LEN = 4 << 20 };
static char from[LEN], to[LEN];

int main(int argc, char **argv) {
    (void)argv;
    memset(from, argc, LEN);
    memcpy(to, from, LEN);
    return to[LEN - 1] != argc;
}
