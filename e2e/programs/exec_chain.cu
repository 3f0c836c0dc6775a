// Runs a kernel and then replaces itself by exec, time and again: each time the process has a new device server.
#include <unistd.h>

#include "paced_work.h"

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "exec_chain", "runs a kernel and then starts itself again in its place",
                              {{"execs", 3, 0, 1000, "how often it is still to do so"},
                               {"wait", 1, 0, 1, "0: replaces itself while its kernel still runs"},
                               {"blocks", 16, 1, 1u << 20, "thread blocks"},
                               {"iterations", 10, 0, UINT64_MAX, "steps of each thread"}});
    const uint64_t execs = arguments["execs"];
    PacedWork work(static_cast<uint32_t>(execs), arguments["blocks"], arguments["iterations"]);
    work.launch(nullptr);
    arguments.progress("launched", execs);
    Digest digest;
    if ((arguments["wait"] || execs == 0) && !work.is_right(digest))
        return EXIT_FAIL;
    if (execs == 0)
        return finish(arguments, digest, true);
    const auto text = [](uint64_t value) { return std::to_string(value); };
    execl("/proc/self/exe", argv[0], "--execs", text(execs - 1).c_str(), "--wait", text(arguments["wait"]).c_str(),
          "--blocks", text(arguments["blocks"]).c_str(), "--iterations", text(arguments["iterations"]).c_str(),
          arguments.wants_progress() ? "--progress" : nullptr, nullptr);
    return EXIT_ERROR;
}
