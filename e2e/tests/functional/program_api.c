// Does what its arguments say, one after the other, and tells what came of it: what hetckpt.h offers, and the CUDA calls
// between which a program calls it.
#include <hetckpt.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "library_calls.h"

typedef unsigned long long Address;
enum { NUM_THREADS = 64, NUM_CALLERS = 4 };

static Address results;
static unsigned num_steps;

// Each thread takes `steps` steps of a generator that begins with its number.
static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry walk(.param .u64 to, .param .u32 steps)\n{\n"
    ".reg .pred %p; .reg .b32 %x, %left, %i, %n, %b; .reg .b64 %to, %at;\n"
    "ld.param.u64 %to, [to]; ld.param.u32 %left, [steps];\n"
    "mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %i, %tid.x;\n"
    "mad.lo.u32 %i, %b, %n, %i; mov.u32 %x, %i;\n"
    "again: setp.eq.u32 %p, %left, 0; @%p bra done;\n"
    "mad.lo.u32 %x, %x, 1664525, 1013904223; sub.u32 %left, %left, 1; bra again;\n"
    "done: mul.wide.u32 %at, %i, 4; add.u64 %at, %to, %at; st.global.u32 [%at], %x; ret;\n}\n";

static void init(void)
{
    void *context;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) exit(3);
    CALL("cuInit", (unsigned), 0);
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
    CALL("cuCtxSetCurrent", (void *), context);
    CALL("cuMemAlloc_v2", (Address *, size_t), &results, NUM_THREADS * 4);
}

static void launch_kernel(void *kernel, unsigned steps)
{
    void *params[] = {&results, &num_steps};
    num_steps = steps;
    CALL("cuLaunchKernel",
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
         kernel, NUM_THREADS / 16, 1, 1, 16, 1, 1, 0, NULL, params, NULL);
}

static void launch(unsigned steps)
{
    void *module, *kernel;
    CALL("cuModuleLoadData", (void **, const void *), &module, ptx);
    CALL("cuModuleGetFunction", (void **, void *, const char *), &kernel, module, "walk");
    // The kernel is built with its first launch: the second one runs at once, whatever else the machine has to do.
    launch_kernel(kernel, 1);
    CALL("cuCtxSynchronize", (void));
    launch_kernel(kernel, steps);
}

static void synchronize(void)
{
    unsigned found[NUM_THREADS];
    CALL("cuCtxSynchronize", (void));
    CALL("cuMemcpyDtoH_v2", (void *, Address, size_t), found, results, sizeof found);
    for (unsigned i = 0; i < NUM_THREADS; i += 13) {
        unsigned x = i;
        for (unsigned step = 0; step < num_steps; step++) x = x * 1664525 + 1013904223;
        if (x != found[i]) {
            printf("thread %u has %u, not %u\n", i, found[i], x);
            exit(1);
        }
    }
    puts("PASS");
}

static void tell(const char *call, int came)
{
    if (came < 0)
        printf("%s %d: %s\n", call, came, hetckpt_error());
    else
        printf("%s %d\n", call, came);
}

static void *call_it(void *file)
{
    return (void *)(long)hetckpt_checkpoint(file);
}

// One of them is served, the others are told so or come after it.
static void call_at_once(char *file)
{
    pthread_t callers[NUM_CALLERS];
    void *came;
    int done = 0, busy = 0;
    for (int i = 0; i < NUM_CALLERS; i++) pthread_create(&callers[i], NULL, call_it, file);
    for (int i = 0; i < NUM_CALLERS; i++) {
        pthread_join(callers[i], &came);
        done += (long)came == 0;
        busy += (long)came == HETCKPT_E_BUSY;
    }
    puts(done > 0 && busy > 0 && done + busy == NUM_CALLERS ? "threads ok" : "threads bad");
}

static void fork_and_call(const char *file)
{
    const pid_t child = fork();
    if (child == 0) {
        tell("child", hetckpt_checkpoint(file));
        tell("child's restored", hetckpt_restored());
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

// Children with devices of their own, which all ask for the same; before the first CUDA call.
static void fork_and_call_together(const char *file)
{
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            init();
            tell("one of them", hetckpt_checkpoint(file));
            tell("restored", hetckpt_restored());
            fflush(stdout);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++) waitpid(children[i], NULL, 0);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *action = argv[i], *value = strchr(action, '=');
        if (value) *value++ = 0;
        if (!strcmp(action, "init")) init();
        if (!strcmp(action, "launch")) launch(strtoul(value, NULL, 10));
        if (!strcmp(action, "synchronize")) synchronize();
        if (!strcmp(action, "checkpoint")) tell(action, hetckpt_checkpoint(value));
        if (!strcmp(action, "label")) tell(action, hetckpt_label(value));
        if (!strcmp(action, "restored")) tell(action, hetckpt_restored());
        if (!strcmp(action, "threads")) call_at_once(value);
        if (!strcmp(action, "fork")) fork_and_call(value);
        if (!strcmp(action, "together")) fork_and_call_together(value);
        if (!strcmp(action, "die-once") && !hetckpt_restored()) raise(SIGKILL);
        if (!strcmp(action, "wait"))
            while (access(value, F_OK)) usleep(10000);
        fflush(stdout);
    }
    return 0;
}
