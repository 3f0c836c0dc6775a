// Ranks of MPI in a ring. In each round every rank runs one kernel that sleeps most of the time, and hands what it has to
// its neighbour, which goes on with that. Built where `mpicxx` is.
#include <mpi.h>

#include "paced_work.h"

constexpr int ROUNDS = 3;

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const Arguments arguments(argc, argv, "mpi_ring", "hands the states of a kernel round in a ring of MPI ranks",
                              {{"blocks", 64, 1, 1u << 20, "thread blocks of each rank"},
                               {"iterations", 10, 0, UINT64_MAX, "steps of a thread in each round"}});
    const uint64_t iterations = arguments["iterations"];
    const uint32_t threads = static_cast<uint32_t>(arguments["blocks"]) * PacedWork::THREADS;
    const auto seed = [&](int of, uint32_t i) { return xorshift32_seed(i + static_cast<uint32_t>(of) * 0x10001u); };
    std::vector<uint32_t> states(threads), received(threads);
    for (uint32_t i = 0; i < threads; ++i)
        states[i] = seed(rank, i);
    DeviceArray<uint32_t> device(states);
    const volatile uint32_t *hurry = hurry_on_signal();
    for (int round = 0; round < ROUNDS; ++round) {
        CHECK_CUDA(cudaMemcpy(device.get(), states.data(), device.bytes(), cudaMemcpyHostToDevice));
        paced<<<static_cast<uint32_t>(arguments["blocks"]), PacedWork::THREADS>>>(device.get(), iterations, hurry);
        CHECK_LAUNCH();
        arguments.progress("round", static_cast<uint64_t>(round));
        states = device.to_host();
        MPI_Sendrecv(states.data(), static_cast<int>(threads), MPI_UINT32_T, (rank + 1) % ranks, round, received.data(),
                     static_cast<int>(threads), MPI_UINT32_T, (rank + ranks - 1) % ranks, round, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        states.swap(received);
    }
    signal(SIGUSR1, SIG_IGN);
    // Where these were at first.
    const int start = ((rank - ROUNDS) % ranks + ranks) % ranks;
    const XorshiftJump jump(iterations * ROUNDS);
    int correct = 1;
    for (uint32_t i = 0; i < threads && correct; ++i)
        if (states[i] != jump(seed(start, i)))
            correct = mismatch("states", i, states[i], jump(seed(start, i)));
    std::vector<uint32_t> all(rank ? 0 : static_cast<size_t>(threads) * static_cast<size_t>(ranks));
    MPI_Gather(states.data(), static_cast<int>(threads), MPI_UINT32_T, all.data(), static_cast<int>(threads),
               MPI_UINT32_T, 0, MPI_COMM_WORLD);
    int all_correct = 0;
    MPI_Reduce(&correct, &all_correct, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    int code = correct ? EXIT_PASS : EXIT_FAIL;
    if (!rank) {
        Digest digest;
        digest.add(all);
        code = finish(arguments, digest, all_correct);
    }
    MPI_Finalize();
    return code;
}
