/* Stands in for libcuda.so.1 in a device server, and tells how often each driver call was made and how long it took.
 * Functions that are not counted are the driver's own.
 *
 * From the environment: HETCKPT_DRIVER_TIMES names the file, a line a function: name, calls, nanoseconds in all. It is
 * right at any time, as a server ends at once.
 *
 * Build, with DRIVER the path of libcuda.so.1; the stub makes the linker note that path, as both have one name:
 *   gcc -shared -x c /dev/null -Wl,-soname,"$DRIVER" -o stub.so
 *   gcc -O2 -shared -fPIC -DDRIVER="\"$DRIVER\"" driver_times.c -Wl,-soname,libcuda.so.1 -Wl,--no-as-needed stub.so \
 *       -o DIR/libcuda.so.1 -ldl
 * Use: HETCKPT_CUDA_DRIVER=DIR/libcuda.so.1 hetckpt run --device cuda -- PROGRAM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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
    /* Its line in the file: name, and two numbers of so many digits. */
    char *line;
};

enum { NAME = 40, DIGITS = 20, LINE = NAME + 2 * DIGITS + 2 };

static void put(char *end, unsigned long long number)
{
    do
        *--end = (char)('0' + number % 10);
    while (number /= 10);
}

static void tell(struct counted *function)
{
    if (!function->line)
        return;
    put(function->line + NAME + DIGITS, atomic_load(&function->calls));
    put(function->line + LINE - 1, atomic_load(&function->nanoseconds));
}

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
        tell(&of_##function);                                                                                          \
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

#define ENTER(function) &of_##function,
static struct counted *const all[] = {FUNCTIONS(ENTER)};
enum { FUNCTIONS_COUNTED = sizeof all / sizeof *all };

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("HETCKPT_DRIVER_TIMES");
    int file = path ? open(path, O_RDWR | O_CREAT | O_TRUNC, 0644) : -1;
    size_t size = (size_t)FUNCTIONS_COUNTED * LINE;
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        return;
    char *lines = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (lines == MAP_FAILED)
        return;
    memset(lines, ' ', size);
    for (int at = 0; at < FUNCTIONS_COUNTED; at++) {
        char *line = lines + at * LINE;
        memcpy(line, all[at]->name, strlen(all[at]->name));
        line[LINE - 1] = '\n';
        all[at]->line = line;
        tell(all[at]);
    }
}
