// A tree of processes: before its first CUDA call the program forks workers, each of which has a device of its own; workers
// that fork again; and idle ones, which load libcuda.so.1 and never call it. Results come back through pipes.
#include <cerrno>
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "paced_work.h"

// What a worker reports.
struct Report {
    uint64_t digest;
    uint32_t is_right;
};

struct Child {
    pid_t pid;
    int results;
};

static void write_report(int pipe, const Digest &digest, bool is_right)
{
    const Report report = {digest.value(), is_right};
    if (write(pipe, &report, sizeof report) != sizeof report)
        exit(EXIT_ERROR);
}

static bool read_report(int pipe, Report &report)
{
    ssize_t got;
    while ((got = read(pipe, &report, sizeof report)) == -1 && errno == EINTR) {
    }
    return got == sizeof report;
}

template <typename Body> static Child start_child(Body body)
{
    int ends[2];
    if (pipe(ends))
        exit(EXIT_ERROR);
    const pid_t pid = fork();
    if (pid == -1)
        exit(EXIT_ERROR);
    if (pid == 0) {
        close(ends[0]);
        body(ends[1]);
        exit(EXIT_PASS);
    }
    close(ends[1]);
    return {pid, ends[0]};
}

// Waits for a child; true if it reported the right result and ended well.
static bool collect(const Child &child, Digest &digest)
{
    Report report = {};
    const bool has_reported = read_report(child.results, report);
    close(child.results);
    int status = 0;
    pid_t waited;
    while ((waited = waitpid(child.pid, &status, 0)) == -1 && errno == EINTR) {
    }
    digest.add(&report.digest, sizeof report.digest);
    const bool has_ended_well = waited == child.pid && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_PASS;
    if (!has_reported || !report.is_right || !has_ended_well)
        fprintf(stderr, "a worker failed: reported %d, right %u, status %#x\n", has_reported, report.is_right, status);
    return has_reported && report.is_right && has_ended_well;
}

// Work of this process, cut into launches of which several are queued at a time.
static bool work(uint32_t number, const Arguments &arguments, Digest &digest)
{
    PacedWork work(number, arguments["blocks"], arguments["iterations"]);
    for (uint32_t launch = 0; launch < arguments["launches"]; ++launch)
        work.launch(nullptr);
    arguments.progress("launched", number);
    return work.is_right(digest);
}

static void run_worker(uint32_t number, uint32_t depth, const Arguments &arguments, int results)
{
    Digest digest;
    bool is_right = true;
    if (depth > 1) {
        const Child child =
            start_child([&](int pipe) { run_worker(number + 100, depth - 1, arguments, pipe); });
        is_right = work(number, arguments, digest);
        is_right = collect(child, digest) && is_right;
    } else {
        is_right = work(number, arguments, digest);
    }
    write_report(results, digest, is_right);
}

// Loads the library and waits until its parent has closed the pipe's other end.
static Child start_idle(int &keep_open)
{
    int ends[2];
    if (pipe(ends))
        exit(EXIT_ERROR);
    const Child child = start_child([&](int results) {
        close(ends[1]);
        const bool is_loaded = dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
        char byte;
        while (read(ends[0], &byte, 1) == -1 && errno == EINTR) {
        }
        write_report(results, Digest(), is_loaded);
    });
    close(ends[0]);
    keep_open = ends[1];
    return child;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "worker_tree", "works on the device in several processes at a time",
                              {{"workers", 2, 0, 64, "processes forked before the first CUDA call"},
                               {"depth", 1, 1, 8, "1: workers work; more: each also forks a worker one less deep"},
                               {"idle", 0, 0, 16, "processes that load the library and never call it"},
                               {"parent", 1, 0, 1, "1: the parent works too"},
                               {"adopts", 0, 0, 1, "1: the parent adopts orphans (PR_SET_CHILD_SUBREAPER)"},
                               {"blocks", 16, 1, 1u << 20, "thread blocks"},
                               {"launches", 4, 1, UINT32_MAX, "launches of each worker"},
                               {"iterations", 10, 0, UINT64_MAX, "steps of each thread in a launch"}});
    if (arguments["adopts"] && prctl(PR_SET_CHILD_SUBREAPER, 1))
        return EXIT_ERROR;
    // Idle ones first: the others would hold a copy of the pipe that ends them.
    std::vector<Child> idle;
    std::vector<int> keep_open(arguments["idle"]);
    for (int &pipe : keep_open)
        idle.push_back(start_idle(pipe));
    std::vector<Child> workers;
    for (uint32_t number = 1; number <= arguments["workers"]; ++number)
        workers.push_back(start_child([&](int results) {
            for (const int pipe : keep_open)
                close(pipe);
            run_worker(number, arguments["depth"], arguments, results);
        }));

    Digest digest;
    bool correct = true;
    if (arguments["parent"])
        correct = work(0, arguments, digest);
    for (const Child &worker : workers)
        correct = collect(worker, digest) && correct;
    for (const int pipe : keep_open)
        close(pipe);
    for (const Child &child : idle)
        correct = collect(child, digest) && correct;
    return finish(arguments, digest, correct);
}
