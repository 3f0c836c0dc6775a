/*
 * hetckpt.h: what a GPU program can ask of hetckpt for itself. docs/api.md says more.
 *
 * Plain C99 and C++, nothing to link (glibc before 2.34: -ldl). A program that includes this runs without hetckpt too:
 * then the calls say so. Under hetckpt its driver library answers them, once the program has made its first CUDA
 * or OpenCL call.
 *
 *     int came = hetckpt_checkpoint("state.hetsnap");
 *     if (came == 1) puts("restored");
 *     else if (came < 0 && came != HETCKPT_E_NOT_RUNNING) fprintf(stderr, "no checkpoint: %s\n", hetckpt_error());
 */
#ifndef HETCKPT_H
#define HETCKPT_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results that are errors. hetckpt_error() says more. */
#define HETCKPT_E_NOT_RUNNING (-1)     /* the program does not run under hetckpt */
#define HETCKPT_E_NOT_INITIALIZED (-2) /* this process has no device: before its first CUDA call, or forked after it */
#define HETCKPT_E_INVALID (-3)         /* an argument that cannot be */
#define HETCKPT_E_NO_STORE (-4)        /* no file is named, and the program is not run by `hetckpt job` */
#define HETCKPT_E_UNATTENDED (-5)      /* neither `hetckpt run`, `job` nor `restore` stands in for the program */
#define HETCKPT_E_BUSY (-6)            /* another thread of this process waits for a checkpoint */
#define HETCKPT_E_FAILED (-7)          /* the dump failed; the program runs on as before */

/* Longest label, bytes. */
#define HETCKPT_MAX_LABEL 256

/* A function of hetckpt's driver library, if that is what the program has loaded. Not for programs. */
static inline void *hetckpt_internal_find(const char *name)
{
    void *found = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver) {
        found = dlsym(driver, name);
        dlclose(driver); /* it stays loaded: this one did not load it */
    }
    return found;
}

static inline int hetckpt_internal_absent(void)
{
    return getenv("HETCKPT_SHIM") ? HETCKPT_E_NOT_INITIALIZED : HETCKPT_E_NOT_RUNNING;
}

static inline int hetckpt_internal_call(const char *name, const char *text)
{
    int (*call)(const char *);
    void *found = hetckpt_internal_find(name);
    if (!found) return hetckpt_internal_absent();
    memcpy(&call, &found, sizeof call);
    return call(text);
}

/*
 * Makes a checkpoint of the program, all its processes, and returns when that is complete. Kernels are stopped in the
 * middle of their work. Returns
 *   0  in the program that runs on,
 *   1  in the program that was restored from the checkpoint: it goes on here,
 *  <0  HETCKPT_E_...: there is no checkpoint, and the program runs on.
 *
 * `file` is the archive, or a URL as `hetckpt dump --output` takes it; a file of that name is replaced once the new one
 * is complete. NULL: a snapshot in the store of the `hetckpt job` that runs the program.
 */
static inline int hetckpt_checkpoint(const char *file)
{
    return hetckpt_internal_call("hetckpt_checkpoint_v1", file);
}

/* How often this process has been restored since it was started; 0 natively. */
static inline int hetckpt_restored(void)
{
    int (*call)(void);
    void *found = hetckpt_internal_find("hetckpt_restored_v1");
    if (!found) return 0;
    memcpy(&call, &found, sizeof call);
    return call();
}

/*
 * Labels the program's snapshots from now on, whoever makes them: a line of UTF-8, shown by `hetckpt ps`, `inspect` and
 * `store`. It stays across restores; "" removes it. Returns 0, or HETCKPT_E_...
 */
static inline int hetckpt_label(const char *label)
{
    return hetckpt_internal_call("hetckpt_label_v1", label);
}

/* Why the calling thread's last call failed, in words; until its next call. */
static inline const char *hetckpt_error(void)
{
    const char *(*call)(void);
    void *found = hetckpt_internal_find("hetckpt_error_v1");
    if (!found) {
        return hetckpt_internal_absent() == HETCKPT_E_NOT_RUNNING
                   ? "the program does not run under hetckpt"
                   : "the program has made no CUDA call yet";
    }
    memcpy(&call, &found, sizeof call);
    return call();
}

#ifdef __cplusplus
}
#endif

#endif
