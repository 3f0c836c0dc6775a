// One kernel whose threads sleep between their steps: it takes as long as it is told to, on a busy machine too, and leaves
// the processor to others.
#include "paced_work.h"

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "paced", "runs one kernel that sleeps most of the time",
                              {{"blocks", 64, 1, 1u << 20, "thread blocks"},
                               {"iterations", 10, 0, UINT64_MAX, "steps of each thread, each with a sleep of 0.1 ms"}});
    PacedWork work(0, arguments["blocks"], arguments["iterations"]);
    work.launch(nullptr);
    arguments.progress("launched");
    Digest digest;
    const bool correct = work.is_right(digest);
    return finish(arguments, digest, correct);
}
