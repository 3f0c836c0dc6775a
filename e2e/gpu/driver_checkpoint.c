/* How long the CUDA driver's own checkpoint lock takes while a kernel runs.
 *
 *   driver_checkpoint PID [TIMEOUT_MS]
 *
 * PID runs on the ordinary driver (not under hetckpt). Prints one JSON line: milliseconds from the request until the
 * process is locked, that is until no kernel of it runs. Then it unlocks it, so that it goes on. What cuda-checkpoint(1)
 * does is the same call. The declarations are our own, after the CUDA driver API's documentation ("CUDA Checkpointing").
 *
 * Build: gcc -O2 driver_checkpoint.c -o driver_checkpoint -ldl
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int cu_result;

/* CUcheckpointLockArgs and CUcheckpointUnlockArgs: 64 bytes each, unused ones zero. */
struct lock_args {
    unsigned int timeout_ms; /* 0: no limit */
    unsigned int reserved0;
    unsigned long long reserved1[7];
};
struct unlock_args {
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

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s PID [TIMEOUT_MS]\n", argv[0]);
        return 2;
    }
    const int pid = atoi(argv[1]);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        return 3;
    }
    cu_result (*init)(unsigned int) = (cu_result(*)(unsigned int))entry_point(driver, "cuInit");
    cu_result (*lock)(int, struct lock_args *) =
        (cu_result(*)(int, struct lock_args *))entry_point(driver, "cuCheckpointProcessLock");
    cu_result (*unlock)(int, struct unlock_args *) =
        (cu_result(*)(int, struct unlock_args *))entry_point(driver, "cuCheckpointProcessUnlock");
    cu_result result = init(0);
    if (result) {
        fprintf(stderr, "cuInit: error %d\n", result);
        return 1;
    }

    struct lock_args lock_args;
    memset(&lock_args, 0, sizeof(lock_args));
    lock_args.timeout_ms = argc > 2 ? (unsigned int)atoi(argv[2]) : 0;
    const double start = milliseconds();
    result = lock(pid, &lock_args);
    printf("{\"what\": \"driver_lock\", \"result\": %d, \"milliseconds\": %.3f}\n", result, milliseconds() - start);
    if (result)
        return 1;
    struct unlock_args unlock_args;
    memset(&unlock_args, 0, sizeof(unlock_args));
    result = unlock(pid, &unlock_args);
    if (result)
        fprintf(stderr, "cuCheckpointProcessUnlock: error %d\n", result);
    return result != 0;
}
