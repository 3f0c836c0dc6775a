/* Stands in for libcuda.so.1 in a program or in a device server, and tells how long each kernel runs: it puts events
 * round each launch and waits for them, one launch after another. Functions that launch nothing are the driver's own.
 *
 * From the environment: HETCKPT_KERNEL_TIMES, to which each process adds a dot and its number, names a file with a line a
 * kernel: name, launches, shortest time and time in all, microseconds. It is right at any time, as a server ends at once.
 * Behind the lines it has zeros.
 *
 * Build as driver_times.c. Use: natively LD_LIBRARY_PATH=DIR PROGRAM; in a server
 * HETCKPT_CUDA_DRIVER=DIR/libcuda.so.1 hetckpt run --device cuda -- PROGRAM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef DRIVER
#error "define DRIVER as the path of libcuda.so.1"
#endif

typedef uintptr_t word;
typedef int (*call)(word, ...);

enum { MAX_KERNELS = 4096, MAX_NAME = 512, LINE = MAX_NAME + 64 };

struct kernel {
    char name[MAX_NAME];
    unsigned long launches;
    double shortest, total;
};

static struct kernel kernels[MAX_KERNELS];
static unsigned num_kernels;
/* The file; NULL if there is none. */
static char *lines;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static call real(const char *name)
{
    static void *driver;
    if (!driver)
        driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    return driver ? (call)dlsym(driver, name) : NULL;
}

static void open_file(void)
{
    static int is_open;
    const char *path = getenv("HETCKPT_KERNEL_TIMES");
    char own[4096];
    if (is_open++ || !path)
        return;
    snprintf(own, sizeof own, "%s.%d", path, (int)getpid());
    int file = open(own, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, (off_t)MAX_KERNELS * LINE) != 0)
        return;
    void *mapped = mmap(NULL, (size_t)MAX_KERNELS * LINE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    lines = mapped == MAP_FAILED ? NULL : mapped;
    close(file);
}

static void note(word function, double microseconds)
{
    const char *name = NULL;
    if (real("cuFuncGetName")((word)&name, function) != 0 && real("cuKernelGetName")((word)&name, function) != 0)
        name = "?";
    unsigned at = 0;
    while (at < num_kernels && strncmp(kernels[at].name, name, MAX_NAME - 1) != 0)
        at++;
    if (at == MAX_KERNELS)
        return;
    struct kernel *kernel = &kernels[at];
    if (at == num_kernels) {
        snprintf(kernel->name, MAX_NAME, "%s", name);
        kernel->shortest = microseconds;
        num_kernels++;
    }
    kernel->launches++;
    kernel->total += microseconds;
    if (microseconds < kernel->shortest)
        kernel->shortest = microseconds;
    open_file();
    if (lines) {
        char numbers[64];
        snprintf(numbers, sizeof numbers, "%lu %.2f %.2f", kernel->launches, kernel->shortest, kernel->total);
        char *line = lines + (size_t)at * LINE;
        snprintf(line, LINE, "%-*s %s", LINE - 2 - (int)strlen(numbers), kernel->name, numbers);
        line[LINE - 1] = '\n';
    }
}

/* What is between begin and end, both made at the first launch. */
static int timed(word function, word stream, int (*launch)(const word *), const word *arguments)
{
    static word begin, end;
    float milliseconds = 0;
    pthread_mutex_lock(&lock);
    if (!begin) {
        real("cuEventCreate")((word)&begin, 0);
        real("cuEventCreate")((word)&end, 0);
    }
    real("cuEventRecord")(begin, stream);
    int result = launch(arguments);
    real("cuEventRecord")(end, stream);
    if (result == 0 && real("cuEventSynchronize")(end) == 0 &&
        real("cuEventElapsedTime")((word)&milliseconds, begin, end) == 0)
        note(function, milliseconds * 1000.0);
    pthread_mutex_unlock(&lock);
    return result;
}

static int launch_kernel(const word *a)
{
    return real("cuLaunchKernel")(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}

static int launch_cooperative(const word *a)
{
    return real("cuLaunchCooperativeKernel")(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
}

static int launch_ex(const word *a)
{
    return real("cuLaunchKernelEx")(a[0], a[1], a[2], a[3]);
}

int cuLaunchKernel(word f, word gx, word gy, word gz, word bx, word by, word bz, word shared, word stream, word params, word extra)
{
    const word arguments[] = {f, gx, gy, gz, bx, by, bz, shared, stream, params, extra};
    return timed(f, stream, launch_kernel, arguments);
}

int cuLaunchCooperativeKernel(word f, word gx, word gy, word gz, word bx, word by, word bz, word shared, word stream, word params)
{
    const word arguments[] = {f, gx, gy, gz, bx, by, bz, shared, stream, params};
    return timed(f, stream, launch_cooperative, arguments);
}

/* CUlaunchConfig: seven numbers, then the stream. */
int cuLaunchKernelEx(word config, word f, word params, word extra)
{
    const word arguments[] = {config, f, params, extra};
    return timed(f, *(const word *)(config + 32), launch_ex, arguments);
}

static void *own(const char *symbol)
{
    if (strcmp(symbol, "cuLaunchKernel") == 0)
        return (void *)cuLaunchKernel;
    if (strcmp(symbol, "cuLaunchCooperativeKernel") == 0)
        return (void *)cuLaunchCooperativeKernel;
    if (strcmp(symbol, "cuLaunchKernelEx") == 0)
        return (void *)cuLaunchKernelEx;
    return NULL;
}

int cuGetProcAddress_v2(const char *symbol, void **found, int version, uint64_t flags, void *status)
{
    int result = real("cuGetProcAddress_v2")((word)symbol, (word)found, (word)version, flags, (word)status);
    void *ours = strcmp(symbol, "cuGetProcAddress") == 0 ? (void *)cuGetProcAddress_v2 : own(symbol);
    if (result == 0 && ours)
        *found = ours;
    return result;
}
