// Makes calls of the CUDA driver API whose numbers are known. The library is loaded when the program runs.
//
//   driver_calls            each call as often as the test expects, then the end
//   driver_calls forever    says "ready" on stderr and makes some calls every 10 ms until it is ended
//   driver_calls speed N    makes N calls of cuCtxGetCurrent, and prints how many nanoseconds of processor time one
//                           took
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t pointer;

static const char PTX[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry touch(.param .u64 place)\n{\n"
                          "    .reg .b64 %rd<2>;\n    .reg .b32 %r<2>;\n"
                          "    ld.param.u64 %rd1, [place];\n    mov.u32 %r1, 7;\n"
                          "    st.global.u32 [%rd1], %r1;\n    ret;\n}\n";

static void *library;

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "there is no %s\n", name);
        exit(1);
    }
    return found;
}

// Calls `name` with arguments that are all passed as 64 bits; an error ends the program, unless it is `expected`.
#define CALL_EXPECTING(expected, name, ...)                                                                            \
    do {                                                                                                               \
        const int result = ((int (*)())find(#name))(__VA_ARGS__);                                                      \
        if (result != (expected)) {                                                                                    \
            fprintf(stderr, #name " gives %d\n", result);                                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CALL(name, ...) CALL_EXPECTING(0, name, __VA_ARGS__)

static const int NOT_SUPPORTED = 801;

// Processor time of this thread: others may keep the machine busy.
static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void measure(uint64_t count)
{
    int (*get)(void **) = (int (*)(void **))find("cuCtxGetCurrent");
    void *context;
    const uint64_t start = now();
    for (uint64_t i = 0; i < count; ++i)
        get(&context);
    printf("%.1f\n", (double)(now() - start) / count);
}

static void launch(void *kernel, pointer *place)
{
    void *parameters[] = {place};
    typedef int launcher(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **);
    const int result = ((launcher *)find("cuLaunchKernel"))(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    if (result) {
        fprintf(stderr, "cuLaunchKernel gives %d\n", result);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int device = 0;
    void *context, *module, *kernel, *entry, *reference;
    char bytes[4096] = {0};
    pointer memory[3];
    CALL(cuInit, 0ul);
    CALL(cuDeviceGet, &device, 0ul);
    CALL(cuDevicePrimaryCtxRetain, &context, (uint64_t)device);
    CALL(cuCtxSetCurrent, context);
    if (argc > 2 && strcmp(argv[1], "speed") == 0) {
        measure(strtoull(argv[2], NULL, 10));
        return 0;
    }
    CALL(cuModuleLoadData, &module, PTX);
    CALL(cuModuleGetFunction, &kernel, module, "touch");
    for (int i = 0; i < 3; ++i)
        CALL(cuMemAlloc_v2, &memory[i], (size_t)1 << 20);
    if (argc > 1) {
        fputs("ready\n", stderr);
        for (;;) {
            launch(kernel, &memory[0]);
            CALL(cuCtxSynchronize);
            CALL_EXPECTING(NOT_SUPPORTED, cuTexRefCreate, &reference);
            usleep(10000);
        }
    }
    for (int i = 0; i < 4; ++i)
        CALL(cuMemcpyHtoD_v2, memory[0], bytes, sizeof bytes);
    for (int i = 0; i < 10; ++i)
        launch(kernel, &memory[i % 3]);
    CALL(cuStreamSynchronize, NULL);
    usleep(300000);
    launch(kernel, &memory[0]);
    CALL(cuCtxSynchronize);
    usleep(200000);
    launch(kernel, &memory[0]);
    CALL(cuCtxSynchronize);
    for (int i = 0; i < 2; ++i)
        CALL(cuMemFree_v2, memory[i]);
    for (int i = 0; i < 5; ++i)
        CALL_EXPECTING(NOT_SUPPORTED, cuTexRefCreate, &reference);
    int status;
    CALL(cuGetProcAddress_v2, "cuMemAlloc", &entry, 12000ul, 0ul, &status);
    // It succeeds, with no address.
    CALL(cuGetProcAddress_v2, "cuNoSuchThing", &entry, 12000ul, 0ul, &status);
    return 0;
}
