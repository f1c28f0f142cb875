// Calls a function many times, so that the instructions of one call can be counted:  count FUNCTION LENGTH CALLS
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char from[4096], to[4096];
static volatile int sink;

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    size_t len = (size_t)atoi(argv[2]);
    for (long calls = atol(argv[3]); calls > 0; calls--) {
        if (!strcmp(argv[1], "memcpy")) {
            memcpy(to, from, len);
        } else if (!strcmp(argv[1], "memmove")) {
            memmove(to, from, len);
        } else if (!strcmp(argv[1], "memset")) {
            memset(to, 0, len);
        } else if (!strcmp(argv[1], "memcmp")) {
            sink = memcmp(to, from, len);
        } else {
            sink = bcmp(to, from, len);
        }
    }
    return 0;
}
