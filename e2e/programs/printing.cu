// Kernels of machine code that print, one line a launch: their name, which a stand-in for the driver prints as well.
#include "program.h"

#include <unistd.h>

extern "C" __global__ void says_its_name(uint32_t lines)
{
    for (uint32_t line = 0; line < lines; ++line)
        printf("says_its_name\n");
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "printing", "kernels of machine code that print",
                              {{"rounds", 200, 1, 1u << 20, "launches"},
                               {"lines", 1, 0, 1u << 20, "lines that each prints"},
                               {"pause", 5000, 0, 1u << 20, "microseconds between rounds"}});
    uint32_t *word;
    CHECK_CUDA(cudaMalloc(&word, sizeof *word));
    for (uint32_t round = 0; round < arguments["rounds"]; ++round) {
        arguments.progress("round", round);
        printf("round %u\n", round);
        says_its_name<<<1, 1>>>(arguments["lines"]);
        CHECK_LAUNCH();
        usleep(arguments["pause"]);
        // Both have the driver print.
        if (round % 2 == 0) {
            CHECK_CUDA(cudaDeviceSynchronize());
        } else {
            uint32_t read;
            CHECK_CUDA(cudaMemcpy(&read, word, sizeof read, cudaMemcpyDeviceToHost));
        }
    }
    CHECK_CUDA(cudaFree(word));
    Digest digest;
    return finish(arguments, digest, true);
}
