// An OpenCL library like the machine's, but for what `OPENCL_FAULT` says: a device without double precision, one with blocks of 16
// threads at most, a compiler that refuses programs of kernels, a device that cannot be opened, one whose opening hangs, a driver that keeps who asks how a running command fares waiting until
// that has ended, a device of its own memory whose driver grants more than there is and tells so when it is used, another platform
// before the machine's own that does not tell its devices; or a device that is lost once the file `OPENCL_LOST` is there. Calls that
// are not here are the machine's library's own, which this one is linked with.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PLATFORM_NAME = 0x902,
    DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    QUEUE_CONTEXT = 0x1090,
    DEVICE_EXTENSIONS = 0x1030,
    DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    EVENT_STATUS = 0x11d3,
    RUNNING = 1,
    DEVICE_NOT_AVAILABLE = -2,
    MEM_OBJECT_ALLOCATION_FAILURE = -4,
    OUT_OF_HOST_MEMORY = -6,
    COMMAND_FAILED = -14,
    MAX_TEXTS = 8,
    // What there is of each GiB.
    MEMORY_BYTES = 64 << 20
};

static void *real(const char *name)
{
    static void *library;
    if (!library) library = dlopen("libOpenCL.so.1", RTLD_NOW);
    return dlsym(library, name);
}

#define REAL(name) ((__typeof__(&name))real(#name))

static int has_fault(const char *what)
{
    const char *fault = getenv("OPENCL_FAULT");
    return fault && !strcmp(fault, what);
}

static int is_lost(void)
{
    const char *file = getenv("OPENCL_LOST");
    return file && !access(file, F_OK);
}

static char broken_platform[] = "The broken platform";

int clGetPlatformIDs(unsigned count, void **platforms, unsigned *found)
{
    if (!has_fault("broken_platform")) return REAL(clGetPlatformIDs)(count, platforms, found);
    if (platforms && count) platforms[0] = broken_platform;
    const int result = REAL(clGetPlatformIDs)(count > 1 ? count - 1 : 0, platforms && count > 1 ? platforms + 1 : NULL, found);
    if (!result && found) ++*found;
    return result;
}

int clGetPlatformInfo(void *platform, unsigned what, size_t size, void *value, size_t *needed)
{
    if (platform != broken_platform) return REAL(clGetPlatformInfo)(platform, what, size, value, needed);
    const char *text = what == PLATFORM_NAME ? broken_platform : "";
    if (needed) *needed = strlen(text) + 1;
    if (value && size > strlen(text)) strcpy(value, text);
    return 0;
}

int clGetDeviceIDs(void *platform, unsigned long type, unsigned count, void **devices, unsigned *found)
{
    if (platform == broken_platform) return OUT_OF_HOST_MEMORY;
    return REAL(clGetDeviceIDs)(platform, type, count, devices, found);
}

int clGetDeviceInfo(void *device, unsigned what, size_t size, void *value, size_t *needed)
{
    const int result = REAL(clGetDeviceInfo)(device, what, size, value, needed);
    if (result || !value) return result;
    if (what == DEVICE_HOST_UNIFIED_MEMORY && has_fault("little_memory")) memset(value, 0, size);
    if (what == DEVICE_MAX_WORK_GROUP_SIZE && has_fault("small_blocks")) *(size_t *)value = 16;
    if (!has_fault("no_fp64")) return 0;
    if (what == DEVICE_DOUBLE_FP_CONFIG) memset(value, 0, size);
    char *found = what == DEVICE_EXTENSIONS ? strstr(value, "cl_khr_fp64") : NULL;
    if (found) memset(found, ' ', strlen("cl_khr_fp64"));
    return 0;
}

void *clCreateContext(const void *properties, unsigned count, void *const *devices, void (*notify)(void), void *user_data, int *error)
{
    while (has_fault("hangs")) pause();
    if (!has_fault("no_context")) return REAL(clCreateContext)(properties, count, devices, notify, user_data, error);
    *error = DEVICE_NOT_AVAILABLE;
    return NULL;
}

void *clCreateProgramWithSource(void *context, unsigned count, const char **texts, const size_t *sizes, int *error)
{
    static const char broken[] = "\n#error the words of the compiler\n";
    const char *all[MAX_TEXTS + 1];
    size_t all_sizes[MAX_TEXTS + 1];
    int has_kernel = 0;
    if (count > MAX_TEXTS) abort();
    for (unsigned i = 0; i < count; i++) {
        all[i] = texts[i];
        all_sizes[i] = sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
        has_kernel |= memmem(texts[i], all_sizes[i], "hetckpt_k", strlen("hetckpt_k")) != NULL;
    }
    if (has_kernel && has_fault("broken_text")) {
        all[count] = broken;
        all_sizes[count++] = strlen(broken);
    }
    return REAL(clCreateProgramWithSource)(context, count, all, all_sizes, error);
}

int clEnqueueNDRangeKernel(void *queue, void *kernel, unsigned dimensions, const size_t *offset, const size_t *global,
                           const size_t *local, unsigned count, void *const *events, void **event)
{
    if (is_lost()) return DEVICE_NOT_AVAILABLE;
    return REAL(clEnqueueNDRangeKernel)(queue, kernel, dimensions, offset, global, local, count, events, event);
}

int clEnqueueReadBuffer(void *queue, void *buffer, unsigned blocking, size_t offset, size_t size, void *to, unsigned count,
                        void *const *events, void **event)
{
    if (is_lost()) return DEVICE_NOT_AVAILABLE;
    return REAL(clEnqueueReadBuffer)(queue, buffer, blocking, offset, size, to, count, events, event);
}

int clEnqueueWriteBuffer(void *queue, void *buffer, unsigned blocking, size_t offset, size_t size, const void *from,
                         unsigned count, void *const *events, void **event)
{
    if (is_lost()) return DEVICE_NOT_AVAILABLE;
    return REAL(clEnqueueWriteBuffer)(queue, buffer, blocking, offset, size, from, count, events, event);
}

int clGetCommandQueueInfo(void *queue, unsigned what, size_t size, void *value, size_t *needed);
void *clCreateUserEvent(void *context, int *error);
int clSetUserEventStatus(void *event, int status);

// The command is taken, and ends in error.
int clEnqueueFillBuffer(void *queue, void *buffer, const void *pattern, size_t pattern_size, size_t offset, size_t size,
                        unsigned count, void *const *events, void **event)
{
    void *context;
    int error;
    if (!has_fault("little_memory") || offset + size <= MEMORY_BYTES)
        return REAL(clEnqueueFillBuffer)(queue, buffer, pattern, pattern_size, offset, size, count, events, event);
    error = REAL(clGetCommandQueueInfo)(queue, QUEUE_CONTEXT, sizeof context, &context, NULL);
    if (!error) *event = REAL(clCreateUserEvent)(context, &error);
    return error ? error : REAL(clSetUserEventStatus)(*event, MEM_OBJECT_ALLOCATION_FAILURE);
}

int clFlush(void *queue)
{
    return is_lost() ? DEVICE_NOT_AVAILABLE : REAL(clFlush)(queue);
}

int clWaitForEvents(unsigned count, void *const *events);

int clGetEventInfo(void *event, unsigned what, size_t size, void *value, size_t *needed)
{
    int result = REAL(clGetEventInfo)(event, what, size, value, needed);
    if (result || !value || what != EVENT_STATUS) return result;
    if (is_lost()) {
        *(int *)value = DEVICE_NOT_AVAILABLE;
    } else if (*(int *)value == RUNNING && has_fault("status_waits")) {
        REAL(clWaitForEvents)(1, &event);
        result = REAL(clGetEventInfo)(event, what, size, value, needed);
    }
    return result;
}

// As a driver that notices: what is waited for comes to an end, and in error.
int clWaitForEvents(unsigned count, void *const *events)
{
    for (;;) {
        int are_over = 1;
        for (unsigned i = 0; i < count; i++) {
            int status = 0;
            const int result = clGetEventInfo(events[i], EVENT_STATUS, sizeof status, &status, NULL);
            are_over &= result || status <= 0;
        }
        if (is_lost()) return COMMAND_FAILED;
        if (are_over) return REAL(clWaitForEvents)(count, events);
        usleep(500);
    }
}
