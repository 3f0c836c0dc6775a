// What every test program shares: named arguments, checked CUDA calls, a digest of the results and the last line.
//
// Standard output must be the same whether or not the program was stopped and continued elsewhere, so nothing that
// depends on time, addresses or process ids may be printed there; `--progress` goes to standard error.
#pragma once

#include <cuda_runtime.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

// `EXIT_UNTOLD`: the work is done, and standard output did not take the result.
enum ExitCode { EXIT_PASS = 0, EXIT_FAIL = 1, EXIT_ERROR = 2, EXIT_UNTOLD = 3 };

// Ends the program with the failed call's text and the runtime's explanation.
#define CHECK_CUDA(call) check_cuda((call), #call, __FILE__, __LINE__)

inline void check_cuda(cudaError_t result, const char *call, const char *file, int line)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(result));
    exit(EXIT_ERROR);
}

// A kernel launch reports its errors here; the kernel itself still runs.
#define CHECK_LAUNCH() check_cuda(cudaGetLastError(), "kernel launch", __FILE__, __LINE__)

// One named argument, `--name VALUE`, with its permitted range.
struct Argument {
    const char *name;
    uint64_t value;
    uint64_t min;
    uint64_t max;
    const char *help;
};

// The command line: whole numbers by name, plus `--progress` and `--help`.
class Arguments {
  public:
    Arguments(int argc, char **argv, const char *program, const char *summary, std::initializer_list<Argument> known)
        : program_(program), known_(known)
    {
        for (int i = 1; i < argc; ++i) {
            if (!strcmp(argv[i], "--help")) {
                print_help(summary);
                exit(EXIT_PASS);
            }
            if (!strcmp(argv[i], "--progress")) {
                progress_ = true;
                continue;
            }
            Argument *argument = strncmp(argv[i], "--", 2) ? nullptr : find(argv[i] + 2);
            if (!argument)
                usage_error("unknown argument", argv[i]);
            if (i + 1 == argc)
                usage_error("no value for", argv[i]);
            argument->value = number(*argument, argv[++i]);
        }
    }

    uint64_t operator[](const char *name) const
    {
        for (const Argument &argument : known_)
            if (!strcmp(argument.name, name))
                return argument.value;
        fprintf(stderr, "%s: no argument named %s was declared\n", program_, name);
        exit(EXIT_ERROR);
    }

    const char *program() const { return program_; }

    // Tells a watching harness how far the program is, where `--progress` asked for it.
    void progress(const char *what, uint64_t step = 0) const
    {
        if (progress_)
            fprintf(stderr, "%s: %s %" PRIu64 "\n", program_, what, step);
    }

    bool wants_progress() const { return progress_; }

  private:
    Argument *find(const char *name)
    {
        for (Argument &argument : known_)
            if (!strcmp(argument.name, name))
                return &argument;
        return nullptr;
    }

    uint64_t number(const Argument &argument, const char *text) const
    {
        char *end = nullptr;
        const uint64_t value = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end)
            usage_error("not a whole number:", text);
        if (value < argument.min || value > argument.max) {
            fprintf(stderr, "%s: --%s must lie between %" PRIu64 " and %" PRIu64 "\n", program_, argument.name,
                    argument.min, argument.max);
            exit(EXIT_ERROR);
        }
        return value;
    }

    void print_help(const char *summary) const
    {
        printf("%s - %s\n\n", program_, summary);
        for (const Argument &argument : known_)
            printf("  --%-12s %s (%" PRIu64 ")\n", argument.name, argument.help, argument.value);
        printf("  --%-12s %s\n", "progress", "tell on standard error what is being done");
    }

    [[noreturn]] void usage_error(const char *what, const char *text) const
    {
        fprintf(stderr, "%s: %s %s (see --help)\n", program_, what, text);
        exit(EXIT_ERROR);
    }

    const char *program_;
    std::vector<Argument> known_;
    bool progress_ = false;
};

// 64-bit FNV-1a over raw bytes.
class Digest {
  public:
    void add(const void *bytes, size_t size)
    {
        const unsigned char *byte = static_cast<const unsigned char *>(bytes);
        for (size_t i = 0; i < size; ++i)
            value_ = (value_ ^ byte[i]) * 0x100000001b3u;
    }

    template <typename T> void add(const std::vector<T> &values) { add(values.data(), values.size() * sizeof(T)); }

    uint64_t value() const { return value_; }

  private:
    uint64_t value_ = 0xcbf29ce484222325u;
};

// Prints the one line that tests compare and returns the exit code.
inline int finish(const Arguments &arguments, const Digest &digest, bool correct)
{
    printf("%s: digest %016" PRIx64 " %s\n", arguments.program(), digest.value(), correct ? "PASS" : "FAIL");
    if (fflush(stdout)) {
        perror("standard output");
        return EXIT_UNTOLD;
    }
    return correct ? EXIT_PASS : EXIT_FAIL;
}

// Says on standard error which element is wrong; returns false for use as a check's result.
template <typename T> bool mismatch(const char *what, uint64_t index, T got, T expected)
{
    fprintf(stderr, "%s[%" PRIu64 "] is %s, expected %s\n", what, index, std::to_string(got).c_str(),
            std::to_string(expected).c_str());
    return false;
}

// Device memory for `count` elements, freed at the end of the scope.
template <typename T> class DeviceArray {
  public:
    explicit DeviceArray(size_t count) : count_(count) { CHECK_CUDA(cudaMalloc(&data_, bytes())); }
    explicit DeviceArray(const std::vector<T> &host) : DeviceArray(host.size())
    {
        CHECK_CUDA(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice));
    }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;
    ~DeviceArray() { CHECK_CUDA(cudaFree(data_)); }

    T *get() { return data_; }
    size_t size() const { return count_; }
    size_t bytes() const { return count_ * sizeof(T); }

    // Waits for the work before it and copies everything back.
    std::vector<T> to_host() const
    {
        std::vector<T> host(count_);
        CHECK_CUDA(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return host;
    }

  private:
    T *data_ = nullptr;
    size_t count_;
};
