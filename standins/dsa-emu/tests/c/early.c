// A library that looks for work queues and submits descriptors in its constructor, as DTO does.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint8_t record[32] __attribute__((aligned(32)));
static char from[100], to[100];

__attribute__((constructor)) static void construct(void) {
    char mode[20];
    FILE *file = fopen("/sys/bus/dsa/devices/wq0.0/mode", "r");
    if (!file || !fgets(mode, sizeof mode, file) || strcmp(mode, "shared\n") != 0)
        return;
    fclose(file);
    int fd = open("/dev/dsa/wq0.0", O_RDWR);
    void *portal = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0);
    if (portal == MAP_FAILED)
        return;
    memset(from, 7, sizeof from);
    uint64_t descriptor[8] __attribute__((aligned(64))) = {
        (3ull << 24 | 4 | 8) << 32, (uint64_t)(uintptr_t)record, (uint64_t)(uintptr_t)from,
        (uint64_t)(uintptr_t)to, sizeof from};
    // ENQCMD
    __asm__ volatile(".byte 0xf2, 0x0f, 0x38, 0xf8, 0x02" : : "a"(portal), "d"(descriptor) : "memory", "cc");
    for (int i = 0; i < 1000000 && record[0] == 0; i++)
        usleep(100);
    if (record[0] == 1 && memcmp(from, to, sizeof from) == 0)
        puts("early: all as it should be");
}
