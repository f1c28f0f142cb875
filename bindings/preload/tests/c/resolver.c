// A function whose address is chosen while the loader relocates the library, by a function that calls memcpy and memset.
#include <string.h>

static int one(void) { return 1; }
static int wrong(void) { return 0; }
static int (*choose(void))(void) {
    char from[300], to[300];
    memset(from, 5, sizeof from);
    memcpy(to, from, sizeof from);
    for (unsigned i = 0; i < sizeof to; i++) {
        if (to[i] != 5) {
            return wrong;
        }
    }
    return memcmp(to, from, sizeof to) == 0 ? one : wrong;
}
extern int chosen(void);
int chosen(void) __attribute__((ifunc("choose")));
