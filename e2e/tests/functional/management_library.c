// Asks NVIDIA's management library about the first GPU, by its PCI bus, and says what it is told; once before and once after
// the file is there that its argument names.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *library;

#define CALL(name, types, ...)                                                \
    do {                                                                      \
        const int result = ((int(*) types)dlsym(library, name))(__VA_ARGS__); \
        if (result) {                                                         \
            printf("%s gives %d\n", name, result);                            \
            return 1;                                                         \
        }                                                                     \
    } while (0)

static int tell(void)
{
    struct { char old_id[16]; unsigned numbers[5]; char id[32]; } bus;
    struct { unsigned long long total, free, used; } memory;
    void *first, *same, *also;
    char name[96], uuid[96];
    unsigned count, processes = 7;
    int major, minor;
    CALL("nvmlDeviceGetCount_v2", (unsigned *), &count);
    CALL("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **), 0, &first);
    CALL("nvmlDeviceGetPciInfo_v3", (void *, void *), first, &bus);
    CALL("nvmlDeviceGetHandleByPciBusId_v2", (const char *, void **), bus.id, &same);
    CALL("nvmlDeviceGetName", (void *, char *, unsigned), first, name, sizeof name);
    CALL("nvmlDeviceGetUUID", (void *, char *, unsigned), first, uuid, sizeof uuid);
    CALL("nvmlDeviceGetHandleByUUID", (const char *, void **), uuid, &also);
    CALL("nvmlDeviceGetCudaComputeCapability", (void *, int *, int *), first, &major, &minor);
    CALL("nvmlDeviceGetMemoryInfo", (void *, void *), first, &memory);
    CALL("nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, void *), first, &processes, NULL);
    const int short_name = ((int (*)(void *, char *, unsigned))dlsym(library, "nvmlDeviceGetName"))(first, name, 3);
    const int no_links = ((int (*)(void *, unsigned, unsigned *))dlsym(library, "nvmlDeviceGetNvLinkState"))(first, 0, &count);
    printf("%u %s %d.%d %s %d %d %d %u\n", count, strlen(uuid) == 40 ? "uuid" : uuid, major, minor,
           first == same && first == also ? "same" : "other", memory.total > 0 && memory.free <= memory.total, short_name, no_links,
           processes);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        printf("there is none\n");
        return 3;
    }
    CALL("nvmlInit_v2", (void));
    if (tell()) return 1;
    fprintf(stderr, "told\n");
    while (access(argv[1], F_OK)) usleep(10000);
    return tell();
}
