// A program that makes the calls its arguments name, prints what each gives, and goes on whatever that is.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Address;
enum { NUM_WORDS = 1024 };

static void *library;

static void *named(const char *name)
{
    void *found = dlsym(library, name);
    if (found) return found;
    fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    exit(3);
}

#define CALL(name, types, ...) ((int(*) types)named(name))(__VA_ARGS__)

// What must work before there is anything to try.
static void need(int result, const char *what)
{
    if (!result) return;
    fprintf(stderr, "%s gives %d\n", what, result);
    exit(2);
}

static int allocate(size_t bytes)
{
    Address address;
    return CALL("cuMemAlloc_v2", (Address *, size_t), &address, bytes);
}

static int allocate_more_than_there_is(void)
{
    size_t free_bytes, total_bytes;
    need(CALL("cuMemGetInfo_v2", (size_t *, size_t *), &free_bytes, &total_bytes), "cuMemGetInfo");
    return allocate(total_bytes + 1);
}

static int fill(Address words)
{
    unsigned back[NUM_WORDS];
    int result = CALL("cuMemsetD32_v2", (Address, unsigned, size_t), words, 7, NUM_WORDS);
    if (!result) result = CALL("cuMemcpyDtoH_v2", (void *, Address, size_t), back, words, sizeof back);
    for (int i = 0; !result && i < NUM_WORDS; i++)
        if (back[i] != 7) return -1;
    return result;
}

// Takes the device away, where the test's OpenCL library looks.
static int lose(void)
{
    const char *path = getenv("OPENCL_LOST");
    FILE *file = path ? fopen(path, "w") : NULL;
    return file ? fclose(file) : -1;
}

static int launch(const char *path, Address words)
{
    static char text[1 << 16];
    void *module, *function, *arguments[] = {&words};
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    int result = CALL("cuModuleLoadData", (void **, const void *), &module, text);
    if (!result) result = CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, "k");
    if (result) return result;
    return CALL("cuLaunchKernel",
                (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
                function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 3;
    int device;
    void *context;
    Address words;
    need(CALL("cuInit", (unsigned), 0), "cuInit");
    need(CALL("cuDeviceGet", (int *, int), &device, 0), "cuDeviceGet");
    need(CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device), "cuDevicePrimaryCtxRetain");
    need(CALL("cuCtxSetCurrent", (void *), context), "cuCtxSetCurrent");
    need(CALL("cuMemAlloc_v2", (Address *, size_t), &words, NUM_WORDS * sizeof(unsigned)), "cuMemAlloc");
    for (int i = 1; i < argc; i++) {
        const char *call = argv[i];
        int result = -1;
        if (!strcmp(call, "allocate_more_than_there_is")) result = allocate_more_than_there_is();
        else if (!strcmp(call, "allocate")) result = allocate(1 << 20);
        else if (!strcmp(call, "fill")) result = fill(words);
        else if (!strcmp(call, "wait")) result = CALL("cuCtxSynchronize", (void));
        else if (!strcmp(call, "lose")) result = lose();
        else if (!strcmp(call, "launch")) result = launch(argv[++i], words);
        printf("%s %d\n", call, result);
    }
    return 0;
}
