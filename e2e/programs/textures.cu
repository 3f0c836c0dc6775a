// Kernels read linear memory, arrays of two and three dimensions, layers and levels through textures, and write an
// array through a surface, in rounds; the host changes what they read, by copies of every kind, and reads arrays back.
// Only NVIDIA GPUs have all that, and run such kernels as they came.
//
// Coordinates and values are such that interpolation is exact, so the host computes each result for the check. Each
// round prints its own digest.
#include "program.h"

#include <unistd.h>

constexpr uint32_t WIDTH = 64, HEIGHT = 32, ELEMENTS = WIDTH * HEIGHT;
constexpr uint32_t DEPTH = 4, LAYERS = 3, LEVELS = 2;
// Where a thread reads the plane, from the corner of its texel: between others, with weights that the hardware has.
constexpr float RIGHT = 1.75f, DOWN = 1.0f;

// What a round's kernel reads and writes.
struct Round {
    cudaTextureObject_t line, plane, volume, layers, levels, written;
    cudaSurfaceObject_t surface;
};

__global__ void mix(Round round, uint32_t *out)
{
    const uint32_t x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, i = y * WIDTH + x;
    if (x >= WIDTH)
        return;
    const float plane = tex2D<float>(round.plane, (x + RIGHT) / WIDTH, (y + DOWN) / HEIGHT);
    const float layer = tex2DLayered<float>(round.layers, x + 0.5f, y + 0.5f, i % LAYERS);
    const uint32_t volume = tex3D<uint32_t>(round.volume, x + 0.5f, y + 0.5f, i % DEPTH + 0.5f);
    const uint32_t level = tex2DLod<uint32_t>(round.levels, (x + 0.5f) / WIDTH, (y + 0.5f) / HEIGHT, float(i % LEVELS));
    const uint32_t written = tex2D<uint32_t>(round.written, x + 0.5f, y + 0.5f);
    const uint32_t value = uint32_t(plane * 8) + uint32_t(layer) * 3 + volume * 5 + level * 7 + written * 11 +
                           tex1Dfetch<uint32_t>(round.line, i);
    surf2Dwrite(value, round.surface, x * uint32_t(sizeof value), y);
    out[i] = value;
}

// What the host knows of it all.
struct Model {
    std::vector<uint32_t> line, volume, level[LEVELS], written;
    std::vector<float> plane, layers;

    Model() : line(ELEMENTS), volume(ELEMENTS * DEPTH), written(ELEMENTS), plane(ELEMENTS), layers(ELEMENTS * LAYERS)
    {
        level[0].resize(ELEMENTS);
        level[1].resize(ELEMENTS / 4);
    }

    float plane_at(uint32_t x, uint32_t y) const { return plane[y % HEIGHT * WIDTH + x % WIDTH]; }

    uint32_t value(uint32_t i) const
    {
        const uint32_t x = i % WIDTH, y = i / WIDTH;
        // Counted from the centre of texel 0, the kernel reads at x + 1.25 and y + 0.5.
        const auto row = [&](uint32_t y) { return plane_at(x + 1, y) * 0.75f + plane_at(x + 2, y) * 0.25f; };
        const float between = row(y) * 0.5f + row(y + 1) * 0.5f;
        const uint32_t of_level = i % LEVELS ? level[1][y / 2 * (WIDTH / 2) + x / 2] : level[0][i];
        return uint32_t(between * 8) + uint32_t(layers[i % LAYERS * ELEMENTS + i]) * 3 +
               volume[i % DEPTH * ELEMENTS + i] * 5 + of_level * 7 + written[i] * 11 + line[i];
    }
};

static uint32_t noise(uint32_t seed, uint32_t i)
{
    uint32_t value = (seed * 2654435761u + i) * 2246822519u;
    value ^= value >> 15;
    return value * 3266489917u;
}

template <typename T> static void change(T *values, size_t count, uint32_t seed)
{
    // Small enough for interpolation to be exact.
    for (size_t i = 0; i < count; ++i)
        values[i] = T(noise(seed, i) >> 22);
}

template <typename T> static void change(std::vector<T> &values, uint32_t seed)
{
    change(values.data(), values.size(), seed);
}

static cudaTextureObject_t texture(const cudaResourceDesc &resource, bool interpolates, bool is_normalized)
{
    cudaTextureDesc description = {};
    for (cudaTextureAddressMode &mode : description.addressMode)
        mode = is_normalized ? cudaAddressModeWrap : cudaAddressModeClamp;
    description.filterMode = interpolates ? cudaFilterModeLinear : cudaFilterModePoint;
    description.mipmapFilterMode = cudaFilterModePoint;
    description.maxMipmapLevelClamp = LEVELS - 1;
    description.normalizedCoords = is_normalized;
    cudaTextureObject_t object;
    CHECK_CUDA(cudaCreateTextureObject(&object, &resource, &description, nullptr));
    return object;
}

static cudaResourceDesc resource_of(cudaArray_t array)
{
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

// Copies `extent` elements of the host's to an array, from a layer on.
template <typename T>
static void fill(cudaArray_t array, std::vector<T> &values, cudaExtent extent, size_t from_layer = 0)
{
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(values.data() + from_layer * ELEMENTS, WIDTH * sizeof(T), WIDTH, HEIGHT);
    copy.dstPos = make_cudaPos(0, 0, from_layer);
    copy.dstArray = array;
    copy.extent = extent;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK_CUDA(cudaMemcpy3D(&copy));
}

static bool is_same(const char *what, const std::vector<uint32_t> &got, const std::vector<uint32_t> &expected)
{
    for (size_t i = 0; i < got.size(); ++i)
        if (got[i] != expected[i])
            return mismatch(what, i, got[i], expected[i]);
    return true;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "textures", "kernels read textures and write a surface",
                              {{"rounds", 300, 1, 1u << 20, "rounds of 10 ms each"}});
    const cudaChannelFormatDesc words = cudaCreateChannelDesc<uint32_t>(), floats = cudaCreateChannelDesc<float>();
    const cudaExtent stack = make_cudaExtent(WIDTH, HEIGHT, DEPTH), layered = make_cudaExtent(WIDTH, HEIGHT, LAYERS);
    const size_t row_bytes = WIDTH * sizeof(uint32_t);
    Model model;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));

    DeviceArray<uint32_t> line(ELEMENTS), out(ELEMENTS), between(ELEMENTS);
    cudaArray_t plane, volume, layers, written[2];
    CHECK_CUDA(cudaMallocArray(&plane, &floats, WIDTH, HEIGHT));
    CHECK_CUDA(cudaMalloc3DArray(&volume, &words, stack));
    CHECK_CUDA(cudaMalloc3DArray(&layers, &floats, layered, cudaArrayLayered));
    for (cudaArray_t &array : written)
        CHECK_CUDA(cudaMallocArray(&array, &words, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
    cudaMipmappedArray_t levels;
    CHECK_CUDA(cudaMallocMipmappedArray(&levels, &words, make_cudaExtent(WIDTH, HEIGHT, 0), LEVELS));
    cudaArray_t level[LEVELS];
    for (uint32_t i = 0; i < LEVELS; ++i)
        CHECK_CUDA(cudaGetMipmappedArrayLevel(&level[i], levels, i));

    cudaResourceDesc linear = {}, mipmapped = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = line.get();
    linear.res.linear.desc = words;
    linear.res.linear.sizeInBytes = line.bytes();
    mipmapped.resType = cudaResourceTypeMipmappedArray;
    mipmapped.res.mipmap.mipmap = levels;
    // Some that are gone again before the others' kernels run leave gaps between the values of those that stay.
    cudaTextureObject_t gaps[2] = {texture(linear, false, false), texture(resource_of(volume), false, false)};
    Round round = {};
    round.line = texture(linear, false, false);
    CHECK_CUDA(cudaDestroyTextureObject(gaps[0]));
    round.volume = texture(resource_of(volume), false, false);
    round.layers = texture(resource_of(layers), false, false);
    round.levels = texture(mipmapped, false, true);
    CHECK_CUDA(cudaDestroyTextureObject(gaps[1]));
    cudaTextureObject_t readers[2];
    cudaSurfaceObject_t writers[2];
    for (int i = 0; i < 2; ++i) {
        const cudaResourceDesc resource = resource_of(written[i]);
        readers[i] = texture(resource, false, false);
        CHECK_CUDA(cudaCreateSurfaceObject(&writers[i], &resource));
    }

    // What stays as it is, and so has to come back from a snapshot alone.
    change(model.volume, 1);
    change(model.level[0], 2);
    change(model.level[1], 3);
    change(model.layers, 4);
    fill(volume, model.volume, stack);
    fill(layers, model.layers, layered);
    for (uint32_t i = 0; i < LEVELS; ++i)
        CHECK_CUDA(cudaMemcpy2DToArray(level[i], 0, 0, model.level[i].data(), row_bytes >> i, row_bytes >> i,
                                       HEIGHT >> i, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy2DToArray(written[0], 0, 0, model.written.data(), row_bytes, row_bytes, HEIGHT,
                                   cudaMemcpyHostToDevice));

    bool correct = true;
    Digest all;
    for (uint32_t number = 1; number <= arguments["rounds"] && correct; ++number) {
        change(model.plane, 5 * number);
        change(model.line, 5 * number + 1);
        CHECK_CUDA(cudaMemcpy2DToArrayAsync(plane, 0, 0, model.plane.data(), row_bytes, row_bytes, HEIGHT,
                                            cudaMemcpyHostToDevice, stream));
        CHECK_CUDA(cudaMemcpyAsync(line.get(), model.line.data(), line.bytes(), cudaMemcpyHostToDevice, stream));
        const uint32_t layer = number % LAYERS;
        change(&model.layers[layer * ELEMENTS], ELEMENTS, 5 * number + 2);
        fill(layers, model.layers, make_cudaExtent(WIDTH, HEIGHT, 1), layer);
        // Programs often make objects anew for each launch.
        round.plane = texture(resource_of(plane), true, true);
        round.written = readers[(number + 1) % 2];
        round.surface = writers[number % 2];
        mix<<<dim3((WIDTH + 31) / 32, HEIGHT), 32, 0, stream>>>(round, out.get());
        CHECK_LAUNCH();
        // From the array that was written, by way of device memory, to the host.
        std::vector<uint32_t> values(ELEMENTS), expected(ELEMENTS), through(ELEMENTS);
        CHECK_CUDA(cudaMemcpy2DFromArrayAsync(between.get(), row_bytes, written[number % 2], 0, 0, row_bytes, HEIGHT,
                                              cudaMemcpyDeviceToDevice, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_CUDA(cudaDestroyTextureObject(round.plane));
        for (uint32_t i = 0; i < ELEMENTS; ++i)
            expected[i] = model.value(i);
        correct = is_same("value", out.to_host(), expected) && is_same("copied", between.to_host(), expected);
        CHECK_CUDA(cudaMemcpy2DFromArray(through.data(), row_bytes, written[number % 2], 0, 0, row_bytes, HEIGHT,
                                         cudaMemcpyDeviceToHost));
        correct = correct && is_same("written", through, expected);
        // What is written stays small, so that products do.
        for (uint32_t i = 0; i < ELEMENTS; ++i)
            model.written[i] = expected[i] & 1023;
        CHECK_CUDA(cudaMemcpy2DToArray(written[number % 2], 0, 0, model.written.data(), row_bytes, row_bytes, HEIGHT,
                                       cudaMemcpyHostToDevice));
        Digest digest;
        digest.add(expected);
        all.add(through);
        printf("round %u: %016" PRIx64 "\n", number, digest.value());
        arguments.progress("round", number);
        usleep(10000);
    }

    for (int i = 0; i < 2; ++i) {
        CHECK_CUDA(cudaDestroyTextureObject(readers[i]));
        CHECK_CUDA(cudaDestroySurfaceObject(writers[i]));
        CHECK_CUDA(cudaFreeArray(written[i]));
    }
    for (cudaTextureObject_t object : {round.line, round.volume, round.layers, round.levels})
        CHECK_CUDA(cudaDestroyTextureObject(object));
    for (cudaArray_t array : {plane, volume, layers})
        CHECK_CUDA(cudaFreeArray(array));
    CHECK_CUDA(cudaFreeMipmappedArray(levels));
    CHECK_CUDA(cudaStreamDestroy(stream));
    return finish(arguments, all, correct);
}
