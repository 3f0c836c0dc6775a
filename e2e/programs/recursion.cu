// Functions that call themselves, each other, and each other with structures and pointers to what their callers have in
// local memory: what cannot be inlined. Threads of a warp are at different depths.
//
// Each thread counts the moves of the Towers of Hanoi while it makes them, sorts numbers by quicksort, and says whether
// a number is even by two functions that ask each other; the host knows all of these.
#include <algorithm>

#include "program.h"

constexpr uint32_t THREADS = 64, COUNT = 24;

struct Towers {
    // Disks on each peg, a bit each.
    uint32_t pegs[3];
    uint32_t moves, wrong;
};

__device__ __noinline__ void hanoi(Towers *towers, int disks, int from, int to)
{
    if (disks == 0)
        return;
    const int over = 3 - from - to;
    hanoi(towers, disks - 1, from, over);
    const uint32_t disk = 1u << (disks - 1);
    // It lies on top, and on none that is smaller.
    if ((towers->pegs[from] & (2 * disk - 1)) != disk || towers->pegs[to] & (disk - 1))
        ++towers->wrong;
    towers->pegs[from] ^= disk;
    towers->pegs[to] ^= disk;
    ++towers->moves;
    hanoi(towers, disks - 1, over, to);
}

__device__ __noinline__ void quicksort(uint32_t *numbers, int first, int last)
{
    if (first >= last)
        return;
    const uint32_t pivot = numbers[(first + last) / 2];
    int i = first, j = last;
    while (i <= j) {
        while (numbers[i] < pivot)
            ++i;
        while (numbers[j] > pivot)
            --j;
        if (i <= j) {
            const uint32_t held = numbers[i];
            numbers[i++] = numbers[j];
            numbers[j--] = held;
        }
    }
    quicksort(numbers, first, j);
    quicksort(numbers, i, last);
}

// Passed and returned by value.
struct Question {
    uint32_t number, depth;
    uint64_t trace[3];
};

__device__ __noinline__ Question is_odd(Question question, uint64_t *visited);

__device__ __noinline__ Question is_even(Question question, uint64_t *visited)
{
    ++*visited;
    if (question.number == 0)
        return question;
    // A pointer to this call's own variable.
    uint64_t below = 0;
    const Question answer = is_odd({question.number - 1, question.depth + 1,
                                    {question.trace[1], question.trace[2], question.trace[0] + question.number}},
                                   &below);
    *visited += below;
    return {answer.number, answer.depth, {answer.trace[0] ^ question.number, answer.trace[1], answer.trace[2]}};
}

__device__ __noinline__ Question is_odd(Question question, uint64_t *visited)
{
    ++*visited;
    if (question.number == 0)
        return {1, question.depth, {question.trace[0], question.trace[1], question.trace[2]}};
    uint64_t below = 0;
    const Question answer = is_even({question.number - 1, question.depth + 1,
                                     {question.trace[2], question.trace[0], question.trace[1] + question.number}},
                                    &below);
    *visited += below;
    return {answer.number, answer.depth, {answer.trace[0], answer.trace[1] ^ question.number, answer.trace[2]}};
}

struct Result {
    uint32_t moves, wrong, unsorted, even;
    uint64_t visited, hash;
};

__host__ __device__ inline uint64_t mixed(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * 0x100000001b3ull;
}

__global__ void recursion(Result *results, uint64_t rounds)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    Result result = {};
    uint32_t random = i;
    // Counted from another number by each thread: of a counter that all have, nvcc 13.0 makes a uniform register, which
    // threads that come back from these calls one by one each count up.
    for (uint64_t round = i; round < i + rounds; ++round) {
        const int disks = 1 + round % 5;
        Towers towers = {{(1u << disks) - 1, 0, 0}, 0, 0};
        hanoi(&towers, disks, 0, 2);
        result.moves += towers.moves;
        result.wrong += towers.wrong + (towers.pegs[2] != (1u << disks) - 1);

        uint32_t numbers[COUNT];
        for (uint32_t &number : numbers)
            number = random = random * 1664525 + 1013904223;
        quicksort(numbers, 0, COUNT - 1);
        for (uint32_t at = 0; at < COUNT; ++at) {
            result.unsorted += at > 0 && numbers[at - 1] > numbers[at];
            result.hash = mixed(result.hash, numbers[at]);
        }

        uint64_t visited = 0;
        const uint32_t number = round % 7;
        const Question answer = is_even({number, 0, {round, i, 1}}, &visited);
        // 0 if it is.
        result.even += answer.number == 0;
        result.visited += visited;
        for (const uint64_t part : answer.trace)
            result.hash = mixed(result.hash, part);
    }
    results[i] = result;
}

// What `is_even` answers, without calling itself.
static void expect_question(uint32_t number, uint64_t trace[3], uint64_t &visited)
{
    visited = number + 1;
    uint64_t way[3] = {trace[0], trace[1], trace[2]};
    for (uint32_t depth = 0; depth < number; ++depth) {
        const uint64_t old[3] = {way[0], way[1], way[2]};
        const bool is_even = depth % 2 == 0;
        way[0] = is_even ? old[1] : old[2];
        way[1] = is_even ? old[2] : old[0];
        way[2] = (is_even ? old[0] : old[1]) + (number - depth);
    }
    for (uint32_t depth = number; depth-- > 0;)
        way[depth % 2 == 0 ? 0 : 1] ^= number - depth;
    std::copy(way, way + 3, trace);
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "recursion", "functions that call themselves",
                              {{"blocks", 4, 1, 1024, "blocks"}, {"rounds", 1000, 1, 1ull << 40, "rounds"}});
    const uint32_t blocks = uint32_t(arguments["blocks"]), n = blocks * THREADS;
    const uint64_t rounds = arguments["rounds"];
    CHECK_CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    Result *device;
    CHECK_CUDA(cudaMalloc(&device, n * sizeof(Result)));
    recursion<<<blocks, THREADS>>>(device, rounds);
    CHECK_LAUNCH();
    std::vector<Result> results(n);
    CHECK_CUDA(cudaMemcpy(results.data(), device, n * sizeof(Result), cudaMemcpyDeviceToHost));
    bool correct = true;
    for (uint32_t i = 0; i < n && correct; ++i) {
        Result expected = {};
        uint32_t random = i;
        for (uint64_t round = i; round < i + rounds; ++round) {
            expected.moves += (1u << (1 + round % 5)) - 1;
            uint32_t numbers[COUNT];
            for (uint32_t &number : numbers)
                number = random = random * 1664525 + 1013904223;
            std::sort(numbers, numbers + COUNT);
            for (const uint32_t number : numbers)
                expected.hash = mixed(expected.hash, number);
            uint64_t trace[3] = {round, i, 1}, visited;
            const uint32_t number = round % 7;
            expect_question(number, trace, visited);
            expected.even += number % 2 == 0;
            expected.visited += visited;
            for (const uint64_t part : trace)
                expected.hash = mixed(expected.hash, part);
        }
        const Result &found = results[i];
        correct = (found.moves == expected.moves || mismatch("moves", i, found.moves, expected.moves)) &&
                  (found.wrong == 0 || mismatch("wrong moves", i, found.wrong, 0u)) &&
                  (found.unsorted == 0 || mismatch("unsorted numbers", i, found.unsorted, 0u)) &&
                  (found.even == expected.even || mismatch("even numbers", i, found.even, expected.even)) &&
                  (found.visited == expected.visited || mismatch("calls", i, found.visited, expected.visited)) &&
                  (found.hash == expected.hash || mismatch("hash", i, found.hash, expected.hash));
    }
    Digest digest;
    digest.add(results);
    return finish(arguments, digest, correct);
}
