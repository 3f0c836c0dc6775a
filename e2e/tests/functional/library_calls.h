// Calls of a library that is loaded while the program runs.
#pragma once
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

// Calls its function `name`, whose parameters have these types, and ends the program if that does not give 0.
#define CALL(name, types, ...)                                                \
    do {                                                                      \
        const int result = ((int(*) types)dlsym(library, name))(__VA_ARGS__); \
        if (result) {                                                         \
            fprintf(stderr, "%s gives %d\n", name, result);                   \
            exit(1);                                                          \
        }                                                                     \
    } while (0)
