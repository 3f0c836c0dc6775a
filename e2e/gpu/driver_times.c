/* Stands in for libcuda.so.1 in a device server, and tells how often each driver call was made and how long it took.
 * Functions that are not counted are the driver's own.
 *
 * From the environment: HETCKPT_DRIVER_TIMES names the file that is written at the end, a line a function: name, calls,
 * microseconds in all.
 *
 * Build, with DRIVER the path of libcuda.so.1; the stub makes the linker note that path, as both have one name:
 *   gcc -shared -x c /dev/null -Wl,-soname,"$DRIVER" -o stub.so
 *   gcc -O2 -shared -fPIC -DDRIVER="\"$DRIVER\"" driver_times.c -Wl,-soname,libcuda.so.1 -Wl,--no-as-needed stub.so \
 *       -o DIR/libcuda.so.1 -ldl
 * Use: HETCKPT_CUDA_DRIVER=DIR/libcuda.so.1 hetckpt run --device cuda -- PROGRAM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifndef DRIVER
#error "define DRIVER as the path of libcuda.so.1"
#endif

typedef uint64_t word;
typedef int (*call)(word, word, word, word, word, word, word, word, word, word, word, word);

struct counted {
    const char *name;
    _Atomic(call) real;
    atomic_ullong calls;
    atomic_ullong nanoseconds;
};

static call find(struct counted *function)
{
    static void *driver;
    if (!driver)
        driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    return driver ? (call)dlsym(driver, function->name) : NULL;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Arguments are passed on as words: all are integers or pointers, and a callee takes no more than it has. */
#define COUNT(function)                                                                                               \
    static struct counted of_##function = {.name = #function};                                                        \
    int function(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l)      \
    {                                                                                                                  \
        call real = atomic_load(&of_##function.real);                                                                  \
        if (!real && !(real = find(&of_##function)))                                                                   \
            return 500;                                                                                                \
        atomic_store(&of_##function.real, real);                                                                       \
        uint64_t begin = now();                                                                                        \
        int result = real(a, b, c, d, e, f, g, h, i, j, k, l);                                                         \
        atomic_fetch_add(&of_##function.nanoseconds, now() - begin);                                                   \
        atomic_fetch_add(&of_##function.calls, 1);                                                                     \
        return result;                                                                                                 \
    }

#define FUNCTIONS(X)                                                                                                   \
    X(cuLaunchKernel)                                                                                                  \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuEventCreate)                                                                                                   \
    X(cuEventRecord)                                                                                                   \
    X(cuEventQuery)                                                                                                    \
    X(cuEventSynchronize)                                                                                              \
    X(cuEventDestroy_v2)                                                                                               \
    X(cuEventElapsedTime_v2)                                                                                           \
    X(cuStreamQuery)                                                                                                   \
    X(cuStreamSynchronize)                                                                                             \
    X(cuMemcpyHtoDAsync_v2)                                                                                            \
    X(cuMemcpyDtoHAsync_v2)                                                                                            \
    X(cuMemcpyDtoDAsync_v2)                                                                                            \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuMemCreate)                                                                                                     \
    X(cuMemMap)                                                                                                        \
    X(cuMemSetAccess)                                                                                                  \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemRelease)                                                                                                    \
    X(cuMemHostRegister_v2)                                                                                            \
    X(cuModuleLoadDataEx)

FUNCTIONS(COUNT)

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("HETCKPT_DRIVER_TIMES");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
#define TELL(function)                                                                                                 \
    if (atomic_load(&of_##function.calls))                                                                             \
        fprintf(file, "%s %llu %.1f\n", #function, atomic_load(&of_##function.calls),                                  \
                (double)atomic_load(&of_##function.nanoseconds) / 1000);
    FUNCTIONS(TELL)
    fclose(file);
}
