/* How long the CUDA driver's own checkpoint calls take.
 *
 *   driver_checkpoint lock PID         lock it, that is wait until no kernel of it runs, and unlock it again
 *   driver_checkpoint checkpoint PID   lock it, and take it off the GPU
 *   driver_checkpoint restore PID      put it back, and unlock it
 *   driver_checkpoint context          make a context on the first GPU
 *
 * PID runs on the ordinary driver (not under hetckpt). Prints one JSON line: the result (0 is success) and milliseconds.
 * What cuda-checkpoint(1) does are the same calls. The declarations are our own, after the CUDA driver API's
 * documentation ("CUDA Checkpointing").
 *
 * Build: gcc -O2 driver_checkpoint.c -o driver_checkpoint -ldl
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int cu_result;

/* CUcheckpointLockArgs, CUcheckpointCheckpointArgs, CUcheckpointRestoreArgs and CUcheckpointUnlockArgs: 64 bytes each,
 * zero for no limit and the same GPUs. */
struct arguments {
    unsigned long long reserved[8];
};

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void *entry_point(void *driver, const char *name)
{
    void *address = dlsym(driver, name);
    if (!address) {
        fprintf(stderr, "this driver has no %s (it is there from 570 on)\n", name);
        exit(3);
    }
    return address;
}

static cu_result call(void *driver, const char *name, int pid)
{
    struct arguments arguments;
    memset(&arguments, 0, sizeof(arguments));
    cu_result (*function)(int, struct arguments *) = (cu_result(*)(int, struct arguments *))entry_point(driver, name);
    const cu_result result = function(pid, &arguments);
    if (result)
        fprintf(stderr, "%s: error %d\n", name, result);
    return result;
}

static cu_result make_context(void *driver)
{
    void *context;
    cu_result (*retain)(void **, int) = (cu_result(*)(void **, int))entry_point(driver, "cuDevicePrimaryCtxRetain");
    return retain(&context, 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const int pid = argc > 2 ? atoi(argv[2]) : 0;
    const int makes_context = !strcmp(what, "context");
    if (!makes_context && (!pid || (strcmp(what, "lock") && strcmp(what, "checkpoint") && strcmp(what, "restore")))) {
        fprintf(stderr, "usage: %s lock|checkpoint|restore PID, or %s context\n", argv[0], argv[0]);
        return 2;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        return 3;
    }
    cu_result (*init)(unsigned int) = (cu_result(*)(unsigned int))entry_point(driver, "cuInit");
    double start = milliseconds();
    cu_result result = init(0);
    if (result) {
        fprintf(stderr, "cuInit: error %d\n", result);
        return 1;
    }
    if (!makes_context)
        start = milliseconds();
    if (makes_context)
        result = make_context(driver);
    else if (!strcmp(what, "restore"))
        result = call(driver, "cuCheckpointProcessRestore", pid);
    else
        result = call(driver, "cuCheckpointProcessLock", pid);
    if (!result && !strcmp(what, "checkpoint"))
        result = call(driver, "cuCheckpointProcessCheckpoint", pid);
    const double locked = milliseconds();
    if (!result && !strcmp(what, "restore"))
        result = call(driver, "cuCheckpointProcessUnlock", pid);
    const double end = !strcmp(what, "restore") ? milliseconds() : locked;
    printf("{\"what\": \"driver_%s\", \"result\": %d, \"milliseconds\": %.3f}\n", what, result, end - start);
    if (!result && !strcmp(what, "lock"))
        result = call(driver, "cuCheckpointProcessUnlock", pid);
    return result != 0;
}
