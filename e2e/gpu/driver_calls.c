/* Calls functions of the CUDA driver known numbers of times, and prints these: a reference for `hetckpt trace`.
 *
 *   driver_calls [TIMES]     TIMES: how often cuCtxGetCurrent is called (1000)
 *
 * Prints a line for each function: its name, a blank, how often it was called. The declarations are our own, after the
 * CUDA driver API's documentation.
 *
 * Build: gcc -O2 driver_calls.c -o driver_calls -ldl
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 50
#define BYTES 4096

static void *driver;

static void *entry_point(const char *name)
{
    void *address = dlsym(driver, name);
    if (!address) {
        fprintf(stderr, "this driver has no %s\n", name);
        exit(1);
    }
    return address;
}

static void check(int result, const char *name)
{
    if (result) {
        fprintf(stderr, "%s gives %d\n", name, result);
        exit(1);
    }
}

#define CALL(name, times, type, ...)                                                                                   \
    do {                                                                                                               \
        int(*function) type = (int(*) type)entry_point(#name);                                                        \
        for (int i = 0; i < (times); ++i)                                                                              \
            check(function(__VA_ARGS__), #name);                                                                       \
        printf("%s %d\n", #name, (times));                                                                             \
    } while (0)

int main(int argc, char **argv)
{
    const int times = argc > 1 ? atoi(argv[1]) : 1000;
    static char bytes[BYTES];
    unsigned long long addresses[ROUNDS];
    int device;
    void *context, *current;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    CALL(cuInit, 1, (unsigned), 0);
    CALL(cuDeviceGet, 3, (int *, int), &device, 0);
    CALL(cuDevicePrimaryCtxRetain, 1, (void **, int), &context, device);
    CALL(cuCtxSetCurrent, 1, (void *), context);
    CALL(cuCtxGetCurrent, times, (void **), &current);
    CALL(cuMemAlloc_v2, ROUNDS, (unsigned long long *, size_t), &addresses[i], BYTES);
    CALL(cuMemcpyHtoD_v2, ROUNDS, (unsigned long long, const void *, size_t), addresses[i], bytes, BYTES);
    CALL(cuCtxSynchronize, 30, (void));
    CALL(cuMemFree_v2, ROUNDS, (unsigned long long), addresses[i]);
    return 0;
}
