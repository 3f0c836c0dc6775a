// Launches a random kernel again and again on memory that the host and the kernel use by turns: managed, or (the first
// argument) the device's own with copies. What it prints depends on the kernel and its operands alone.
//
//   random_managed managed|device PTX BLOCKS THREADS COOPERATIVE OPERANDS OUTPUT COMPARED SEED ROUNDS LAUNCHES
//
// OPERANDS, OUTPUT and COMPARED are bytes; the kernel `k` takes the addresses of the operands and of the output, and
// ROUNDS.
#include <string.h>
#include <time.h>
#include "library_calls.h"

typedef unsigned long long Word;

enum { BESIDE_WORDS = 1 << 15, TOUCHED_WORDS = 40 };

static Word seed;

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
static Word next(void)
{
    Word z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static char *text_of(const char *path)
{
    FILE *const file = fopen(path, "rb");
    if (!file) exit(2);
    fseek(file, 0, SEEK_END);
    const long length = ftell(file);
    rewind(file);
    char *const text = calloc(length + 1, 1);
    if (fread(text, 1, length, file) != (size_t)length) exit(2);
    fclose(file);
    return text;
}

// Memory that the host uses; the kernel uses what `*device` is set to.
static Word *allocate(int is_managed, size_t bytes, Word *device)
{
    if (is_managed) {
        CALL("cuMemAllocManaged", (Word *, size_t, unsigned), device, bytes, 1);
        return (Word *)*device;
    }
    if (device) CALL("cuMemAlloc_v2", (Word *, size_t), device, bytes);
    return calloc(bytes, 1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

// Random words of memory that no kernel uses.
static void touch(Word *beside, Word *expected)
{
    for (int i = 0; i < TOUCHED_WORDS; i++) {
        const Word at = next() % BESIDE_WORDS;
        if (beside[at] != expected[at]) {
            printf("word %llu is %llx, not %llx\n", at, beside[at], expected[at]);
            exit(1);
        }
        if (i % 2) beside[at] = expected[at] = next();
    }
}

int main(int argc, char **argv)
{
    if (argc != 12) return 2;
    const int is_managed = !strcmp(argv[1], "managed");
    Word numbers[9];
    for (int i = 0; i < 9; i++) numbers[i] = strtoull(argv[3 + i], NULL, 10);
    const size_t blocks = numbers[0], threads = numbers[1], is_cooperative = numbers[2];
    const size_t operand_words = numbers[3] / 8, output_bytes = numbers[4], compared_words = numbers[5] / 8;
    Word rounds = numbers[7];
    seed = numbers[6];

    void *context, *module, *kernel;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 3;
    CALL("cuInit", (unsigned), 0);
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
    CALL("cuCtxSetCurrent", (void *), context);
    CALL("cuModuleLoadData", (void **, const void *), &module, text_of(argv[2]));
    CALL("cuModuleGetFunction", (void **, void *, const char *), &kernel, module, "k");

    Word operands_at, output_at, beside_at;
    Word *const operands = allocate(is_managed, operand_words * 8, &operands_at);
    Word *const output = allocate(is_managed, output_bytes, &output_at);
    Word *const beside = allocate(is_managed, BESIDE_WORDS * 8, &beside_at);
    Word *const expected = calloc(BESIDE_WORDS, 8);
    for (size_t i = 0; i < operand_words; i++) {
        // Small numbers among others.
        const Word word = next();
        operands[i] = next() % 4 ? word : word % 40;
    }
    for (size_t i = 0; i < BESIDE_WORDS; i++) beside[i] = expected[i] = next();

    double in_kernels = 0;
    Word hash = 0;
    for (Word launch = 0; launch < numbers[8]; launch++) {
        memset(output, 0, output_bytes);
        if (!is_managed) {
            CALL("cuMemcpyHtoD_v2", (Word, const void *, size_t), operands_at, operands, operand_words * 8);
            CALL("cuMemcpyHtoD_v2", (Word, const void *, size_t), output_at, output, output_bytes);
        }
        void *params[] = {&operands_at, &output_at, &rounds};
        const double begin = seconds();
        if (is_cooperative)
            CALL("cuLaunchCooperativeKernel",
                 (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **),
                 kernel, blocks, 1, 1, threads, 1, 1, 0, NULL, params);
        else
            CALL("cuLaunchKernel",
                 (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
                 kernel, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL);
        // While the kernel runs, at times.
        if (next() % 4 == 0) touch(beside, expected);
        CALL("cuCtxSynchronize", (void));
        // The first launch builds the kernel.
        if (launch) in_kernels += seconds() - begin;
        touch(beside, expected);
        if (!is_managed) CALL("cuMemcpyDtoH_v2", (void *, Word, size_t), output, output_at, output_bytes);
        for (size_t i = 0; i < compared_words; i++) hash = (hash ^ output[i]) * 0x100000001b3 + (hash >> 29);
        // The next launch depends on what this one has left.
        for (int i = 0; i < 16; i++) operands[next() % operand_words] ^= hash * (2 * i + 1);
        printf("%llu: %llx\n", launch, hash);
        fflush(stdout);
    }
    fprintf(stderr, "kernels: %.0f ms\n", in_kernels * 1e3);
    puts("PASS");
    return 0;
}
