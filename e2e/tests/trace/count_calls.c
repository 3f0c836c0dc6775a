// A library for LD_PRELOAD that counts calls, as a reference for what probes count. For each function that
// `functions.h` lists there is one of the same name that adds 1 and jumps to the next one of that name. At the end it
// writes names and counts to the file $CALL_COUNTS. `functions.h` is made by the test: a line COUNT(name) each.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(name)                                                                                                    \
    unsigned long calls_of_##name;                                                                                     \
    void *next_##name;                                                                                                 \
    __asm__(".text\n"                                                                                                  \
            ".globl " #name "\n"                                                                                       \
            ".type " #name ", @function\n" #name ":\n"                                                                 \
            "    lock incq calls_of_" #name "(%rip)\n"                                                                 \
            "    jmp *next_" #name "(%rip)\n"                                                                          \
            ".size " #name ", . - " #name "\n");
#pragma GCC visibility push(hidden)
#include "functions.h"
#pragma GCC visibility pop
#undef COUNT

__attribute__((constructor)) static void find_next(void)
{
#define COUNT(name) next_##name = dlsym(RTLD_NEXT, #name);
#include "functions.h"
#undef COUNT
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("CALL_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
#define COUNT(name)                                                                                                    \
    if (calls_of_##name)                                                                                               \
        fprintf(file, "%s %lu\n", #name, calls_of_##name);
#include "functions.h"
    fclose(file);
}
