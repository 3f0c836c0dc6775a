// Takes a process through the states of CUDA's checkpoint functions: client LIBCUDA PID.
// Then does what NVIDIA's `cuda-checkpoint --toggle --pid PID` does, twice.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUNNING, LOCKED, CHECKPOINTED };
enum { SUCCESS = 0, NOT_INITIALIZED = 3, ILLEGAL_STATE = 401 };

static void *library;

static void *function(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "there is no %s\n", name);
        exit(1);
    }
    return found;
}

static int act(const char *name, int pid)
{
    return ((int (*)(int, void *))function(name))(pid, NULL);
}

static void expect(const char *what, int got, int wanted)
{
    if (got != wanted) {
        fprintf(stderr, "%s: %d, not %d\n", what, got, wanted);
        exit(1);
    }
}

static void expect_state(int pid, int wanted)
{
    unsigned state = 99;
    expect("the call for the state", ((int (*)(int, unsigned *))function("cuCheckpointProcessGetState"))(pid, &state),
           SUCCESS);
    expect("the state", (int)state, wanted);
}

int main(int argc, char **argv)
{
    if (argc != 3 || !(library = dlopen(argv[1], RTLD_NOW))) {
        fprintf(stderr, "usage: client LIBCUDA PID\n");
        return 2;
    }
    const int pid = atoi(argv[2]);
    expect_state(pid, RUNNING);
    expect("checkpoint while running", act("cuCheckpointProcessCheckpoint", pid), ILLEGAL_STATE);
    expect("lock", act("cuCheckpointProcessLock", pid), SUCCESS);
    expect_state(pid, LOCKED);
    expect("lock again", act("cuCheckpointProcessLock", pid), ILLEGAL_STATE);
    expect("checkpoint", act("cuCheckpointProcessCheckpoint", pid), SUCCESS);
    expect_state(pid, CHECKPOINTED);
    expect("unlock while checkpointed", act("cuCheckpointProcessUnlock", pid), ILLEGAL_STATE);
    expect("restore", act("cuCheckpointProcessRestore", pid), SUCCESS);
    expect_state(pid, LOCKED);
    expect("unlock", act("cuCheckpointProcessUnlock", pid), SUCCESS);
    expect_state(pid, RUNNING);
    expect("a process without a device", act("cuCheckpointProcessLock", getpid()), NOT_INITIALIZED);

    static const unsigned char uuid[16] = {0x69, 0xa2, 0x8e, 0x9f, 0x24, 0x49, 0x8b, 0x47,
                                           0xb0, 0x30, 0xc5, 0xda, 0x33, 0x0e, 0xa4, 0xe9};
    void **table;
    expect("the table", ((int (*)(void ***, const void *))function("cuGetExportTable"))(&table, uuid), SUCCESS);
    char *arguments[] = {"cuda-checkpoint", "--toggle", "--pid", argv[2], NULL};
    int (*const tool)(int, char **) = (int (*)(int, char **))table[7];
    expect("the first toggle", tool(4, arguments), 0);
    expect_state(pid, CHECKPOINTED);
    expect("the second toggle", tool(4, arguments), 0);
    expect_state(pid, RUNNING);
    return 0;
}
