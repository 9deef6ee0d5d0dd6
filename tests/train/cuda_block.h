// What the loss kernel uses of CUDA, for one block of threads on a CPU: threads run in turn up to each barrier, and an
// asynchronous copy arrives no earlier than the wait for it.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <ucontext.h>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __global__ static
#define __launch_bounds__(threads)
#define __shared__ static
#define __cvta_generic_to_shared(address) 0
#define __log2f log2f

struct uint4 { unsigned x, y, z, w; };
struct Copy { unsigned to; const uint4 *from; };
struct Thread {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(1 << 15);
    std::vector<Copy> begun;
    std::deque<std::vector<Copy>> groups;
};

static struct { int x; } threadIdx, blockIdx;
static std::vector<Thread> threads(1024);
static std::vector<uint4> memory;
static uint4 *held;
static ucontext_t scheduler;
static float lanes[1024];

static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static void __syncthreads() { swapcontext(&threads[threadIdx.x].context, &scheduler); }

static float __shfl_xor_sync(unsigned, float value, int far) {
    lanes[threadIdx.x] = value;
    __syncthreads();
    float other = lanes[threadIdx.x ^ far];
    __syncthreads();
    return other;
}

static unsigned bf16(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
static unsigned bf16_pair(float upper, float lower) { return bf16(upper) << 16 | bf16(lower); }

static void copy_begin(unsigned to, const uint4 *from) { threads[threadIdx.x].begun.push_back({to, from}); }
static void copy_commit() {
    Thread &own = threads[threadIdx.x];
    own.groups.push_back(own.begun);
    own.begun.clear();
}
static void copy_wait(unsigned pending) {
    for (auto &groups = threads[threadIdx.x].groups; groups.size() > pending; groups.pop_front())
        for (Copy copy : groups.front()) memcpy((char *)held + copy.to, copy.from, 16);
}

struct Arguments {
    unsigned short *logits; const long long *targets; const float *scale; float *losses; int vocab, columns, ignored;
};
typedef void (*Kernel)(unsigned short *, const long long *, const float *, float *, int, int, int);
static Kernel kernel;
static Arguments given;

static void enter() {
    kernel(given.logits, given.targets, given.scale, given.losses, given.vocab, given.columns, given.ignored);
}

static void run_block(Kernel chosen, Arguments arguments, int block, int count, int bytes) {
    kernel = chosen, given = arguments, blockIdx.x = block;
    memory.assign(bytes / 16, uint4{~0u, ~0u, ~0u, ~0u});  // not numbers
    held = memory.data();
    for (int n = 0; n < count; n++) {
        ucontext_t &context = threads[n].context;
        getcontext(&context);
        context.uc_stack.ss_sp = threads[n].stack.data();
        context.uc_stack.ss_size = threads[n].stack.size();
        context.uc_link = &scheduler;
        makecontext(&context, enter, 0);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (threadIdx.x = 0; threadIdx.x < count; threadIdx.x++)
            swapcontext(&scheduler, &threads[threadIdx.x].context);
}
