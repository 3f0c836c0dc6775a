// A program with 300 pinned buffers, each a memfd of its own. Once it is told to by the file that its argument names, it looks
// whether all have kept what was in them and are still read by the device, and says so.
#include <unistd.h>
#include "library_calls.h"

typedef unsigned long long Address;
enum { NUM_BUFFERS = 300, BYTES = (2 << 20) + 4096, WORDS = BYTES / 4 };

int main(int argc, char **argv)
{
    static unsigned *buffers[NUM_BUFFERS];
    Address words;
    void *context;
    if (argc != 2) return 2;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    CALL("cuInit", (unsigned), 0);
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
    CALL("cuCtxSetCurrent", (void *), context);
    CALL("cuMemAlloc_v2", (Address *, size_t), &words, BYTES);
    for (unsigned i = 0; i < NUM_BUFFERS; i++) {
        CALL("cuMemAllocHost_v2", (void **, size_t), (void **)&buffers[i], BYTES);
        buffers[i][WORDS - 1] = i + 1;
    }
    fprintf(stderr, "all is there\n");
    while (access(argv[1], F_OK)) usleep(10000);
    for (unsigned i = 0; i < NUM_BUFFERS; i++) {
        CALL("cuMemcpyHtoD_v2", (Address, const void *, size_t), words, buffers[i], BYTES);
        unsigned last = 0;
        CALL("cuMemcpyDtoH_v2", (void *, Address, size_t), &last, words + BYTES - 4, sizeof last);
        if (last != i + 1) {
            fprintf(stderr, "buffer %u ends with %u\n", i, last);
            return 1;
        }
    }
    puts("all is kept");
    return 0;
}
