// A kernel goes round and round and reads textures of every shape, format, filter and address mode, and adds to
// surfaces. Where filters are at work, values and weights are such that devices round to halves alone: the host, which
// samples by the rules of the CUDA C++ Programming Guide ("Texture Fetching"), computes the sums of software's sampler.
#include "program.h"

#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

constexpr int WIDTH = 16, HEIGHT = 8, DEPTH = 4, LAYERS = 3, LEVELS = 2;
constexpr int THREADS = WIDTH * HEIGHT, PHASES = 16;

struct Images {
    cudaTextureObject_t bytes, mirrored, halves, bordered, volume, lines, layers, cube, gathered, list, words, levels;
    cudaSurfaceObject_t plane, stack, fixed;
};

// What thread (x, y) reads in a phase of the loop, by whatever samples.
#pragma nv_exec_check_disable
template <class Sampler> __host__ __device__ uint64_t sampled(const Sampler &images, int x, int y, int phase)
{
    uint64_t sum = 0;
    int number = 1;
    const auto add = [&](float value) { sum += uint64_t(int64_t(value * 64)) * (2 * number++ + 1); };
    const float part = phase * 0.125f, turn = phase % 3 - 1.0f;
    const float4 bytes = images.bytes((x + phase + 0.5f) / WIDTH + turn, (y + 0.5f) / HEIGHT - turn);
    for (const float byte : {bytes.x, bytes.y, bytes.z, bytes.w})
        add(rintf(byte * 255));
    add(images.mirrored((x + part) / WIDTH + 2 * turn, (y - part) / HEIGHT + turn));
    const float2 halves = images.halves(x - 2 + part, y + 3 - part);
    add(halves.x), add(halves.y);
    add(images.bordered(x - 2 + part, y + part, phase % 8 - 2 + 0.5f));
    add(images.volume(x + part, y - part, phase % DEPTH + 0.25f));
    add(images.lines(x + phase - 4 + 0.5f, phase % 5 - 1));
    add(images.layers(x + part, y + part, phase % LAYERS));
    const float across = (x + 0.5f) / WIDTH * 2 - 1, down = (y + 0.5f) / HEIGHT * 2 - 1, sign = phase & 1 ? -1 : 1;
    switch (phase / 2 % 3) {
    case 0:
        add(images.cube(sign, across, down));
        break;
    case 1:
        add(images.cube(across, sign, down));
        break;
    default:
        add(images.cube(across, down, sign));
    }
    const float4 gathered = images.gathered(x + part, y + 1 - part);
    add(gathered.x), add(gathered.y), add(gathered.z), add(gathered.w);
    const int4 list = images.list(THREADS * (phase % 2) + y * WIDTH + x - phase);
    add(list.x), add(list.y), add(list.z), add(list.w);
    add(rintf(images.words((x + 0.5f) / WIDTH + turn) * 65535));
    add(images.levels((x + 0.5f) / WIDTH, (y + 0.5f) / HEIGHT, phase % 3 * 0.5f));
    add(images.fixed(x - 2 + phase, y, phase % LAYERS, phase & 1));
    return sum;
}

// As a device samples.
struct Hardware {
    Images images;

    __device__ float4 bytes(float x, float y) const { return tex2D<float4>(images.bytes, x, y); }
    __device__ float mirrored(float x, float y) const { return tex2D<float>(images.mirrored, x, y); }
    __device__ float2 halves(float x, float y) const { return tex2D<float2>(images.halves, x, y); }
    __device__ float bordered(float x, float y, float z) const { return tex3D<short>(images.bordered, x, y, z); }
    __device__ float volume(float x, float y, float z) const { return tex3D<float>(images.volume, x, y, z); }
    __device__ float lines(float x, int layer) const { return tex1DLayered<int>(images.lines, x, layer); }
    __device__ float layers(float x, float y, int l) const { return tex2DLayered<float>(images.layers, x, y, l); }
    __device__ float cube(float x, float y, float z) const { return texCubemap<float>(images.cube, x, y, z); }
    __device__ float4 gathered(float x, float y) const { return tex2Dgather<float4>(images.gathered, x, y, 1); }
    __device__ int4 list(int at) const
    {
        const char4 found = tex1Dfetch<char4>(images.list, at);
        return make_int4(found.x, found.y, found.z, found.w);
    }
    __device__ float words(float x) const { return tex1D<float>(images.words, x); }
    __device__ float levels(float x, float y, float level) const
    {
        return tex2DLod<float>(images.levels, x, y, level);
    }
    __device__ float fixed(int x, int y, int layer, bool clamps) const
    {
        return clamps ? surf2DLayeredread<uint8_t>(images.fixed, x, y, layer, cudaBoundaryModeClamp)
                      : surf2DLayeredread<uint8_t>(images.fixed, x, y, layer, cudaBoundaryModeZero);
    }
};

__global__ void sample(Hardware hardware, uint64_t *out, uint64_t rounds)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x, x = i % WIDTH, y = i / WIDTH;
    const cudaSurfaceObject_t plane = hardware.images.plane, stack = hardware.images.stack;
    uint64_t sum = 0;
#pragma unroll 1
    for (uint64_t round = 0; round < rounds; ++round) {
        const uint64_t value = sampled(hardware, x, y, int(round % PHASES));
        sum += value;
        // What was added up so far, as a pair of words and as four shorts of one slice.
        const uint2 before = surf2Dread<uint2>(plane, x * 8, y);
        const uint64_t added = (uint64_t(before.y) << 32 | before.x) + value;
        surf2Dwrite(make_uint2(uint32_t(added), uint32_t(added >> 32)), plane, x * 8, y);
        ushort4 parts = surf3Dread<ushort4>(stack, x * 8, y, i % DEPTH);
        parts.x += uint16_t(value);
        parts.w ^= uint16_t(value >> 8);
        surf3Dwrite(parts, stack, x * 8, y, i % DEPTH);
    }
    out[i] = sum;
}

static int noise(uint32_t seed, int i)
{
    uint32_t value = (seed * 2654435761u + uint32_t(i)) * 2246822519u;
    value ^= value >> 15;
    return int((value * 3266489917u) >> 24);
}

static int clamped(int at, int size)
{
    return std::min(std::max(at, 0), size - 1);
}

// The same on the host. Elements are noise by their number in the image.
struct Rules {
    static float element(uint32_t seed, int x, int y = 0, int z = 0, int width = WIDTH, int height = HEIGHT)
    {
        return noise(seed, (z * height + y) * width + x);
    }

    static int wrapped(float x, int size) { return int(std::floor((x - std::floor(x)) * size)); }

    // Between elements, along one dimension.
    template <class Element> static float between(float x, Element element)
    {
        const float below = std::floor(x - 0.5f), weight = x - 0.5f - below;
        return (1 - weight) * element(int(below)) + weight * element(int(below) + 1);
    }

    template <class Element> static float between(float x, float y, Element element)
    {
        return between(y, [&](int row) { return between(x, [&](int at) { return element(at, row); }); });
    }

    static float mirror(float x, int size)
    {
        const float whole = std::floor(x), part = x - whole;
        return (std::fmod(whole, 2.0f) != 0 ? 1 - part : part) * size;
    }

    float4 bytes(float x, float y) const
    {
        const int at = 4 * (wrapped(y, HEIGHT) * WIDTH + wrapped(x, WIDTH));
        return make_float4(noise(1, at) / 255.0f, noise(1, at + 1) / 255.0f, noise(1, at + 2) / 255.0f,
                           noise(1, at + 3) / 255.0f);
    }
    float mirrored(float x, float y) const
    {
        return between(mirror(x, WIDTH), mirror(y, HEIGHT),
                       [](int x, int y) { return element(2, clamped(x, WIDTH), clamped(y, HEIGHT)); });
    }
    float2 halves(float x, float y) const
    {
        const auto component = [&](int number) {
            const float found = between(x, y, [&](int x, int y) {
                return float(noise(3, 2 * (clamped(y, HEIGHT) * WIDTH + clamped(x, WIDTH)) + number));
            });
            // What a filter finds between halves is a half, here with 11 bits; what lies in the middle goes up.
            const float step = std::ldexp(1.0f, std::max(std::ilogb(found), 0) - 10);
            return std::floor(found / step + 0.5f) * step;
        };
        return make_float2(component(0), component(1));
    }
    float bordered(float x, float y, float z) const
    {
        const int at[3] = {int(std::floor(x)), int(std::floor(y)), int(std::floor(z))};
        const bool is_there =
            at[0] >= 0 && at[0] < WIDTH && at[1] >= 0 && at[1] < HEIGHT && at[2] >= 0 && at[2] < DEPTH;
        return is_there ? element(4, at[0], at[1], at[2]) - 128 : 0;
    }
    float volume(float x, float y, float z) const
    {
        return between(z, [&](int slice) {
            return between(x, y, [&](int x, int y) {
                return element(5, clamped(x, WIDTH), clamped(y, HEIGHT), clamped(slice, DEPTH));
            });
        });
    }
    float lines(float x, int layer) const
    {
        // There are no layers below the first one: one that is is far behind the last.
        const int found = int(std::min(uint32_t(layer), uint32_t(LAYERS - 1)));
        return element(6, clamped(int(std::floor(x)), WIDTH), found, 0, WIDTH, LAYERS) - 100;
    }
    float layers(float x, float y, int layer) const
    {
        return between(x, y, [&](int x, int y) { return element(7, clamped(x, WIDTH), clamped(y, HEIGHT), layer); });
    }
    float cube(float x, float y, float z) const
    {
        // Direct3D's table of faces, which CUDA's is.
        const float size[3] = {std::fabs(x), std::fabs(y), std::fabs(z)};
        const int axis = size[0] >= size[1] && size[0] >= size[2] ? 0 : size[1] >= size[2] ? 1 : 2;
        const float directed[3] = {x, y, z}, way = directed[axis] < 0 ? -1 : 1;
        const float s = axis == 0 ? -z * way : axis == 1 ? x : x * way, t = axis == 1 ? z * way : -y;
        const int face = 2 * axis + (way < 0);
        const auto at = [&](float across) { return clamped(int(std::floor((across + 1) / 2 * HEIGHT)), HEIGHT); };
        return element(8, at(s), at(t), face, HEIGHT, HEIGHT);
    }
    float4 gathered(float x, float y) const
    {
        const int left = int(std::floor(x - 0.5f)), top = int(std::floor(y - 0.5f));
        const auto at = [&](int x, int y) {
            return float(noise(9, 2 * (clamped(y, HEIGHT) * WIDTH + clamped(x, WIDTH)) + 1));
        };
        return make_float4(at(left, top + 1), at(left + 1, top + 1), at(left + 1, top), at(left, top));
    }
    int4 list(int at) const
    {
        if (at < 0 || at >= THREADS)
            return make_int4(0, 0, 0, 0);
        const auto part = [&](int number) { return noise(10, 4 * at + number) - 128; };
        return make_int4(part(0), part(1), part(2), part(3));
    }
    float words(float x) const { return noise(11, wrapped(x, WIDTH)) * 257 / 65535.0f; }
    float levels(float x, float y, float level) const
    {
        const auto of = [&](int number) {
            return element(12 + number, wrapped(x, WIDTH >> number), wrapped(y, HEIGHT >> number), 0, WIDTH >> number);
        };
        const float weight = std::min(level, 1.0f);
        return (1 - weight) * of(0) + weight * of(1);
    }
    float fixed(int x, int y, int layer, bool clamps) const
    {
        const bool is_there = x >= 0 && x < WIDTH;
        return is_there || clamps ? element(14, clamped(x, WIDTH), y, layer) : 0;
    }
};

// Noise in every element, of `components` each.
template <class T>
static std::vector<T> filled(uint32_t seed, int elements, int components, int offset = 0, int times = 1)
{
    std::vector<T> values(elements * components);
    for (int i = 0; i < elements * components; ++i)
        values[i] = T(float((noise(seed, i) + offset) * times));
    return values;
}

template <class T>
static cudaArray_t array(const std::vector<T> &values, cudaChannelFormatDesc format, cudaExtent extent,
                         uint32_t flags = 0)
{
    cudaArray_t made;
    CHECK_CUDA(cudaMalloc3DArray(&made, &format, extent, flags));
    const size_t rows = std::max<size_t>(extent.height, 1), slices = std::max<size_t>(extent.depth, 1);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<T *>(values.data()), values.size() * sizeof(T) / rows / slices,
                                      extent.width, rows);
    copy.dstArray = made;
    copy.extent = make_cudaExtent(extent.width, rows, slices);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK_CUDA(cudaMemcpy3D(&copy));
    return made;
}

static cudaResourceDesc resource_of(cudaArray_t array)
{
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

enum Reading { ELEMENTS, NORMALIZED };

static cudaTextureObject_t texture(const cudaResourceDesc &resource, cudaTextureAddressMode mode,
                                   cudaTextureFilterMode filter, bool is_normalized, Reading reading = ELEMENTS)
{
    cudaTextureDesc description = {};
    std::fill(std::begin(description.addressMode), std::end(description.addressMode), mode);
    description.filterMode = filter;
    description.readMode = reading == NORMALIZED ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    description.normalizedCoords = is_normalized;
    description.mipmapFilterMode = cudaFilterModeLinear;
    description.maxMipmapLevelClamp = LEVELS - 1;
    cudaTextureObject_t object;
    CHECK_CUDA(cudaCreateTextureObject(&object, &resource, &description, nullptr));
    return object;
}

static cudaSurfaceObject_t surface(cudaArray_t array)
{
    const cudaResourceDesc resource = resource_of(array);
    cudaSurfaceObject_t object;
    CHECK_CUDA(cudaCreateSurfaceObject(&object, &resource));
    return object;
}

int main(int argc, char **argv)
{
    const Arguments arguments(argc, argv, "sampling", "a kernel reads textures and adds to surfaces",
                              {{"rounds", 100, 1, UINT64_MAX / 2, "rounds, each of all textures"}});
    const uint64_t rounds = arguments["rounds"];
    const auto bits = [](int x, int y, int z, int w, cudaChannelFormatKind kind) {
        return cudaCreateChannelDesc(x, y, z, w, kind);
    };
    const auto UNSIGNED = cudaChannelFormatKindUnsigned, SIGNED = cudaChannelFormatKindSigned,
               FLOAT = cudaChannelFormatKindFloat;
    const cudaExtent plane = make_cudaExtent(WIDTH, HEIGHT, 0), volume = make_cudaExtent(WIDTH, HEIGHT, DEPTH),
                     layered = make_cudaExtent(WIDTH, HEIGHT, LAYERS);
    const cudaTextureFilterMode POINT = cudaFilterModePoint, LINEAR = cudaFilterModeLinear;

    Images images = {};
    const cudaArray_t bytes = array(filled<uint8_t>(1, THREADS, 4), bits(8, 8, 8, 8, UNSIGNED), plane);
    images.bytes = texture(resource_of(bytes), cudaAddressModeWrap, POINT, true, NORMALIZED);
    const cudaArray_t mirrored = array(filled<float>(2, THREADS, 1), bits(32, 0, 0, 0, FLOAT), plane);
    images.mirrored = texture(resource_of(mirrored), cudaAddressModeMirror, LINEAR, true);
    // Rows of device memory, with a gap behind each.
    const std::vector<half> halves = filled<half>(3, THREADS, 2);
    void *rows;
    size_t pitch;
    CHECK_CUDA(cudaMallocPitch(&rows, &pitch, WIDTH * sizeof(half2), HEIGHT));
    CHECK_CUDA(cudaMemcpy2D(rows, pitch, halves.data(), WIDTH * sizeof(half2), WIDTH * sizeof(half2), HEIGHT,
                            cudaMemcpyHostToDevice));
    cudaResourceDesc pitched = {};
    pitched.resType = cudaResourceTypePitch2D;
    pitched.res.pitch2D = {rows, bits(16, 16, 0, 0, FLOAT), WIDTH, HEIGHT, pitch};
    images.halves = texture(pitched, cudaAddressModeClamp, LINEAR, false);
    const cudaArray_t bordered =
        array(filled<int16_t>(4, THREADS * DEPTH, 1, -128), bits(16, 0, 0, 0, SIGNED), volume);
    images.bordered = texture(resource_of(bordered), cudaAddressModeBorder, POINT, false);
    const cudaArray_t deep = array(filled<float>(5, THREADS * DEPTH, 1), bits(32, 0, 0, 0, FLOAT), volume);
    images.volume = texture(resource_of(deep), cudaAddressModeClamp, LINEAR, false);
    const cudaArray_t lines = array(filled<int32_t>(6, WIDTH * LAYERS, 1, -100), bits(32, 0, 0, 0, SIGNED),
                                    make_cudaExtent(WIDTH, 0, LAYERS), cudaArrayLayered);
    images.lines = texture(resource_of(lines), cudaAddressModeClamp, POINT, false);
    const cudaArray_t layers =
        array(filled<float>(7, THREADS * LAYERS, 1), bits(32, 0, 0, 0, FLOAT), layered, cudaArrayLayered);
    images.layers = texture(resource_of(layers), cudaAddressModeClamp, LINEAR, false);
    const cudaArray_t cube = array(filled<float>(8, HEIGHT * HEIGHT * 6, 1), bits(32, 0, 0, 0, FLOAT),
                                   make_cudaExtent(HEIGHT, HEIGHT, 6), cudaArrayCubemap);
    images.cube = texture(resource_of(cube), cudaAddressModeClamp, POINT, true);
    const cudaArray_t gathered =
        array(filled<float>(9, THREADS, 2), bits(32, 32, 0, 0, FLOAT), plane, cudaArrayTextureGather);
    images.gathered = texture(resource_of(gathered), cudaAddressModeClamp, POINT, false);
    DeviceArray<int8_t> list(filled<int8_t>(10, THREADS, 4, -128));
    cudaResourceDesc linear = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear = {list.get(), bits(8, 8, 8, 8, SIGNED), list.bytes()};
    images.list = texture(linear, cudaAddressModeClamp, POINT, false);
    const cudaArray_t words =
        array(filled<uint16_t>(11, WIDTH, 1, 0, 257), bits(16, 0, 0, 0, UNSIGNED), make_cudaExtent(WIDTH, 0, 0));
    images.words = texture(resource_of(words), cudaAddressModeWrap, POINT, true, NORMALIZED);
    cudaMipmappedArray_t mipmapped;
    const cudaChannelFormatDesc number = bits(32, 0, 0, 0, FLOAT);
    CHECK_CUDA(cudaMallocMipmappedArray(&mipmapped, &number, plane, LEVELS));
    for (uint32_t i = 0; i < LEVELS; ++i) {
        const std::vector<float> values = filled<float>(12 + i, THREADS >> 2 * i, 1);
        cudaArray_t level;
        CHECK_CUDA(cudaGetMipmappedArrayLevel(&level, mipmapped, i));
        const size_t row_bytes = (WIDTH >> i) * sizeof(float);
        CHECK_CUDA(cudaMemcpy2DToArray(level, 0, 0, values.data(), row_bytes, row_bytes, HEIGHT >> i,
                                       cudaMemcpyHostToDevice));
    }
    cudaResourceDesc levels = {};
    levels.resType = cudaResourceTypeMipmappedArray;
    levels.res.mipmap.mipmap = mipmapped;
    images.levels = texture(levels, cudaAddressModeWrap, POINT, true);
    const cudaArray_t sums = array(std::vector<uint2>(THREADS), bits(32, 32, 0, 0, UNSIGNED), plane,
                                   cudaArraySurfaceLoadStore);
    const cudaArray_t stack = array(std::vector<ushort4>(THREADS * DEPTH), bits(16, 16, 16, 16, UNSIGNED), volume,
                                    cudaArraySurfaceLoadStore);
    const cudaArray_t fixed = array(filled<uint8_t>(14, THREADS * LAYERS, 1), bits(8, 0, 0, 0, UNSIGNED), layered,
                                    cudaArrayLayered | cudaArraySurfaceLoadStore);
    images.plane = surface(sums);
    images.stack = surface(stack);
    images.fixed = surface(fixed);

    DeviceArray<uint64_t> out(THREADS);
    sample<<<2, THREADS / 2>>>(Hardware{images}, out.get(), rounds);
    CHECK_LAUNCH();
    const std::vector<uint64_t> got = out.to_host();
    std::vector<uint64_t> added(THREADS);
    CHECK_CUDA(cudaMemcpy2DFromArray(added.data(), WIDTH * 8, sums, 0, 0, WIDTH * 8, HEIGHT, cudaMemcpyDeviceToHost));
    std::vector<ushort4> parts(THREADS * DEPTH);
    cudaMemcpy3DParms back = {};
    back.srcArray = stack;
    back.dstPtr = make_cudaPitchedPtr(parts.data(), WIDTH * 8, WIDTH, HEIGHT);
    back.extent = volume;
    back.kind = cudaMemcpyDeviceToHost;
    CHECK_CUDA(cudaMemcpy3D(&back));

    bool correct = true;
    const Rules rules;
    for (int i = 0; i < THREADS && correct; ++i) {
        uint64_t expected = 0;
        for (int phase = 0; phase < PHASES; ++phase) {
            const uint64_t times = rounds / PHASES + (uint64_t(phase) < rounds % PHASES);
            expected += sampled(rules, i % WIDTH, i / WIDTH, phase) * times;
        }
        const uint16_t low = parts[i % DEPTH * THREADS + i].x;
        if (got[i] != expected)
            correct = mismatch("sum", i, got[i], expected);
        else if (added[i] != expected)
            correct = mismatch("sum in a surface", i, added[i], expected);
        else if (low != uint16_t(expected))
            correct = mismatch("sum in a slice", i, low, uint16_t(expected));
    }
    Digest digest;
    digest.add(got);
    digest.add(added);
    digest.add(parts);

    for (cudaTextureObject_t object :
         {images.bytes, images.mirrored, images.halves, images.bordered, images.volume, images.lines, images.layers,
          images.cube, images.gathered, images.list, images.words, images.levels})
        CHECK_CUDA(cudaDestroyTextureObject(object));
    for (cudaSurfaceObject_t object : {images.plane, images.stack, images.fixed})
        CHECK_CUDA(cudaDestroySurfaceObject(object));
    for (cudaArray_t made : {bytes, mirrored, bordered, deep, lines, layers, cube, gathered, words, sums, stack, fixed})
        CHECK_CUDA(cudaFreeArray(made));
    CHECK_CUDA(cudaFreeMipmappedArray(mipmapped));
    CHECK_CUDA(cudaFree(rows));
    return finish(arguments, digest, correct);
}
