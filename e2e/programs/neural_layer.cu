// Two dense layers with ReLU over a stream of input vectors: one copy stream feeds several compute streams through
// pinned memory and events, so that copies and kernels of different lanes overlap.
#include <algorithm>
#include <cmath>

#include "program.h"
#include "xorshift.h"

constexpr uint32_t THREADS = 128;

// output[row] = max(0, weights[row] . input + bias[row]); one block per row, a tree keeps the order of additions fixed.
__global__ void dense_relu(const float *__restrict__ weights, const float *__restrict__ bias,
                           const float *__restrict__ input, float *__restrict__ output, uint32_t width)
{
    __shared__ float partial[THREADS];
    const uint32_t row = blockIdx.x;
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < width; i += THREADS)
        sum += weights[row * width + i] * input[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        output[row] = fmaxf(partial[0] + bias[row], 0.0f);
}

struct Layer {
    std::vector<float> weights, bias;

    // Weights have variance 1 / width, so that activations neither grow nor vanish.
    Layer(uint32_t width, uint32_t seed) : weights(width * width), bias(width)
    {
        const float scale = std::sqrt(3.0f / static_cast<float>(width));
        for (uint32_t i = 0; i < width * width; ++i)
            weights[i] = scale * signed_unit(xorshift32_seed(seed + i));
        for (uint32_t i = 0; i < width; ++i)
            bias[i] = 0.25f * signed_unit(xorshift32_seed(~(seed + i)));
    }

    std::vector<double> apply(const std::vector<double> &input) const
    {
        std::vector<double> output(bias.begin(), bias.end());
        for (size_t row = 0; row < output.size(); ++row) {
            for (size_t i = 0; i < input.size(); ++i)
                output[row] += weights[row * input.size() + i] * input[i];
            output[row] = std::max(output[row], 0.0);
        }
        return output;
    }
};

struct DeviceLayer {
    DeviceArray<float> weights, bias;

    explicit DeviceLayer(const Layer &layer) : weights(layer.weights), bias(layer.bias) {}

    void launch(float *input, float *output, cudaStream_t stream)
    {
        const uint32_t width = bias.size();
        dense_relu<<<width, THREADS, 0, stream>>>(weights.get(), bias.get(), input, output, width);
        CHECK_LAUNCH();
    }
};

// One compute stream with its buffers; `input` and `output` are pinned.
struct Lane {
    cudaStream_t stream;
    cudaEvent_t input_ready, started, done;
    float *input, *output;
    DeviceArray<float> device_input, device_hidden, device_output;
    Digest digest;
    bool busy = false;
    uint32_t step = 0;

    explicit Lane(uint32_t width) : device_input(width), device_hidden(width), device_output(width)
    {
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK_CUDA(cudaEventCreateWithFlags(&input_ready, cudaEventDisableTiming));
        CHECK_CUDA(cudaEventCreate(&started));
        CHECK_CUDA(cudaEventCreate(&done));
        CHECK_CUDA(cudaMallocHost(&input, width * sizeof(float)));
        CHECK_CUDA(cudaMallocHost(&output, width * sizeof(float)));
    }
    Lane(const Lane &) = delete;
    ~Lane()
    {
        CHECK_CUDA(cudaFreeHost(output));
        CHECK_CUDA(cudaFreeHost(input));
        CHECK_CUDA(cudaEventDestroy(done));
        CHECK_CUDA(cudaEventDestroy(started));
        CHECK_CUDA(cudaEventDestroy(input_ready));
        CHECK_CUDA(cudaStreamDestroy(stream));
    }
};

static float input_value(uint32_t step, uint32_t i) { return signed_unit(xorshift32_seed(step * 65537 + i)); }

static bool is_right(const Layer &first, const Layer &second, const Lane &lane)
{
    const uint32_t width = first.bias.size();
    std::vector<double> input(width);
    for (uint32_t i = 0; i < width; ++i)
        input[i] = input_value(lane.step, i);
    const std::vector<double> expected = second.apply(first.apply(input));
    for (uint32_t i = 0; i < width; ++i)
        if (!(std::fabs(lane.output[i] - expected[i]) <= 1e-4 * (1.0 + expected[i])))
            return mismatch<double>("output", i, lane.output[i], expected[i]);
    return true;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "neural_layer", "two dense layers with ReLU on several streams",
                              {{"width", 256, 1, 16384, "inputs and outputs of each layer"},
                               {"steps", 64, 1, UINT32_MAX, "input vectors"},
                               {"streams", 4, 1, 64, "compute streams"}});
    const uint32_t width = arguments["width"], steps = arguments["steps"], num_lanes = arguments["streams"];

    const Layer first(width, 1), second(width, 0x40000000);
    DeviceLayer device_first(first), device_second(second);
    cudaStream_t copy_stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&copy_stream, cudaStreamNonBlocking));
    std::vector<Lane *> lanes;
    for (uint32_t i = 0; i < num_lanes; ++i)
        lanes.push_back(new Lane(width));

    // About sixteen of the outputs are compared with the reference, all of them enter the digest.
    const uint32_t check_every = std::max(steps / 16, 1u);
    bool correct = true;
    const auto collect = [&](Lane &lane) {
        if (!lane.busy)
            return;
        CHECK_CUDA(cudaEventSynchronize(lane.done));
        lane.busy = false;
        lane.digest.add(lane.output, width * sizeof(float));
        if (correct && lane.step % check_every == 0)
            correct = is_right(first, second, lane);
        if (arguments.wants_progress()) {
            float milliseconds;
            CHECK_CUDA(cudaEventElapsedTime(&milliseconds, lane.started, lane.done));
            arguments.progress("microseconds for a step:", static_cast<uint64_t>(milliseconds * 1000));
        }
    };
    for (uint32_t step = 0; step < steps; ++step) {
        Lane &lane = *lanes[step % num_lanes];
        collect(lane);
        lane.step = step;
        lane.busy = true;
        for (uint32_t i = 0; i < width; ++i)
            lane.input[i] = input_value(step, i);
        CHECK_CUDA(cudaMemcpyAsync(lane.device_input.get(), lane.input, width * sizeof(float), cudaMemcpyHostToDevice,
                                   copy_stream));
        CHECK_CUDA(cudaEventRecord(lane.input_ready, copy_stream));
        CHECK_CUDA(cudaStreamWaitEvent(lane.stream, lane.input_ready, 0));
        CHECK_CUDA(cudaEventRecord(lane.started, lane.stream));
        device_first.launch(lane.device_input.get(), lane.device_hidden.get(), lane.stream);
        device_second.launch(lane.device_hidden.get(), lane.device_output.get(), lane.stream);
        CHECK_CUDA(cudaMemcpyAsync(lane.output, lane.device_output.get(), width * sizeof(float), cudaMemcpyDeviceToHost,
                                   lane.stream));
        CHECK_CUDA(cudaEventRecord(lane.done, lane.stream));
    }
    Digest digest;
    for (Lane *lane : lanes) {
        collect(*lane);
        const uint64_t lane_digest = lane->digest.value();
        digest.add(&lane_digest, sizeof(lane_digest));
        delete lane;
    }
    CHECK_CUDA(cudaStreamDestroy(copy_stream));
    return finish(arguments, digest, correct);
}
