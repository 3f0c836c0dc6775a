// What runs in Linux when a traced process calls a driver, and when that call returns. It counts and sums up in maps;
// src/measured.rs says what the sums mean. The loader tells by a probe's cookie what it has to know of the function
// (src/description.rs): both have the same layout of it.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// Functions of Linux that read a program's memory are for programs that say so.
char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define MAX_DEPTH 8
#define NUM_BUCKETS 40
#define NAME_BYTES 128

// Of the structures of Linux only what is read here. The loader finds out where it lies.
typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} __attribute__((preserve_access_index));

struct task_struct {
	int pid;
	int tgid;
	struct signal_struct *signal;
} __attribute__((preserve_access_index));

enum class {
	CLASS_OTHER,
	CLASS_LAUNCH,
	CLASS_COPY,
	CLASS_WAIT,
	CLASS_WAIT_ALL,
	CLASS_ALLOC,
	CLASS_FREE,
	CLASS_RETAIN,
	CLASS_KERNEL,
	CLASS_ASKS,
	CLASS_RECORD,
	CLASS_WAIT_EVENT,
};

// Argument number that stands for "the value returned", or "always".
#define RETURNED 15
// Numbers of the queue's argument that stand for: in the launch configuration that is the first argument (CUDA's
// `CUlaunchConfig`); not known.
#define CONFIGURED_QUEUE 14
#define UNKNOWN_QUEUE 15
#define CONFIGURED_QUEUE_OFFSET 32

static __always_inline __u32 bits(__u64 cookie, int from, int count)
{
	return (cookie >> from) & ((1ULL << count) - 1);
}

#define COOKIE_FUNCTION(c) bits(c, 0, 16)
#define COOKIE_CLASS(c) bits(c, 16, 5)
#define COOKIE_SIZE(c) bits(c, 21, 4)
#define COOKIE_FACTOR(c) bits(c, 25, 4)
#define COOKIE_UNIT(c) bits(c, 29, 3)
#define COOKIE_HANDLE(c) bits(c, 32, 4)
#define COOKIE_NAME(c) bits(c, 36, 4)
#define COOKIE_QUEUE(c) bits(c, 40, 4)
#define COOKIE_BLOCKING(c) bits(c, 44, 4)
#define COOKIE_PER_THREAD(c) bits(c, 48, 1)
#define COOKIE_RETURNS_HANDLE(c) bits(c, 49, 1)
#define COOKIE_RETURNS_NOTHING(c) bits(c, 50, 1)

// Sums of one function on one processor.
struct function {
	__u64 calls;
	__u64 returns;
	__u64 failures;
	__u64 total_ns;
	__u64 min_ns;
	__u64 max_ns;
	__u64 bytes;
	__u64 histogram[NUM_BUCKETS];
};

// A call under way.
struct call {
	__u64 cookie;
	__u64 start_ns;
	__u64 stack;
	__u64 handle;
	__u64 name;
	__u64 bytes;
	__u64 queue;
	__u64 sequence;
	__u32 is_outermost;
	__u32 is_submission;
};

struct thread {
	__u64 depth;
	struct call calls[MAX_DEPTH];
};

struct process {
	__u64 live_bytes;
	__u64 peak_bytes;
	__u64 allocated_bytes;
	__u64 allocations;
	__u64 frees;
	__u64 launches;
	__u64 sequence;
	__u64 in_flight;
	__u64 generation;
	__u64 dirty_queues;
	__u64 idle_since;
	__u64 idle_ns;
	__u64 idle_times;
};

struct handle {
	__u64 process;
	__u64 value;
};

struct allocation {
	__u64 bytes;
	__u64 references;
};

// Work was given to it that nobody has waited for, if `dirty` is the process's generation.
struct queue {
	__u64 dirty;
	__u64 sequence;
};

struct event {
	__u64 queue;
	__u64 sequence;
};

struct name {
	char text[NAME_BYTES];
};

struct asked {
	__u64 times;
	__u64 refused;
};

#define MAP(map_name, map_type, key_type, value_type, entries, flags)                                                  \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__uint(max_entries, entries);                                                                          \
		__uint(map_flags, flags);                                                                              \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} map_name SEC(".maps")

MAP(traced, BPF_MAP_TYPE_HASH, __u32, __u64, 65536, BPF_F_NO_PREALLOC);
MAP(threads, BPF_MAP_TYPE_HASH, __u32, struct thread, 65536, BPF_F_NO_PREALLOC);
MAP(processes, BPF_MAP_TYPE_HASH, __u32, struct process, 65536, BPF_F_NO_PREALLOC);
MAP(functions, BPF_MAP_TYPE_PERCPU_HASH, __u32, struct function, 16384, BPF_F_NO_PREALLOC);
MAP(allocations, BPF_MAP_TYPE_HASH, struct handle, struct allocation, 1 << 20, BPF_F_NO_PREALLOC);
MAP(queues, BPF_MAP_TYPE_HASH, struct handle, struct queue, 65536, BPF_F_NO_PREALLOC);
MAP(events, BPF_MAP_TYPE_HASH, struct handle, struct event, 1 << 18, BPF_F_NO_PREALLOC);
MAP(kernels, BPF_MAP_TYPE_HASH, struct handle, struct name, 1 << 17, BPF_F_NO_PREALLOC);
MAP(launches, BPF_MAP_TYPE_HASH, struct name, __u64, 65536, BPF_F_NO_PREALLOC);
MAP(asked, BPF_MAP_TYPE_HASH, struct name, struct asked, 16384, BPF_F_NO_PREALLOC);
MAP(scratch, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct name, 1, 0);
// What found no room in a map.
MAP(lost, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1, 0);

static const struct thread NO_THREAD;
static const struct process NO_PROCESS;
static const struct function NO_FUNCTION;

static __always_inline void note_lost(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
}

// The value of `key`, made as a copy of `empty` if there is none yet.
#define FIND_OR_MAKE(map, key, empty)                                                                                  \
	({                                                                                                             \
		void *found = bpf_map_lookup_elem(map, key);                                                           \
		if (!found) {                                                                                          \
			bpf_map_update_elem(map, key, empty, BPF_NOEXIST);                                             \
			found = bpf_map_lookup_elem(map, key);                                                         \
			if (!found)                                                                                    \
				note_lost();                                                                           \
		}                                                                                                      \
		found;                                                                                                 \
	})

// Argument `number`, from 1 on; 0 if there is none of that number.
static __always_inline __u64 argument(struct pt_regs *registers, __u32 number)
{
	switch (number) {
	case 0:
	case RETURNED:
		return 0;
	case 1:
		return PT_REGS_PARM1(registers);
	case 2:
		return PT_REGS_PARM2(registers);
	case 3:
		return PT_REGS_PARM3(registers);
	case 4:
		return PT_REGS_PARM4(registers);
	case 5:
		return PT_REGS_PARM5(registers);
	case 6:
		return PT_REGS_PARM6(registers);
	}
	__u64 value = 0;
#if defined(__TARGET_ARCH_arm64)
	if (number == 7)
		return PT_REGS_PARM7(registers);
	if (number == 8)
		return PT_REGS_PARM8(registers);
	const void *place = (const void *)(PT_REGS_SP(registers) + (number - 9) * 8);
#else
	// Above the return address.
	const void *place = (const void *)(PT_REGS_SP(registers) + (number - 6) * 8);
#endif
	bpf_probe_read_user(&value, sizeof(value), place);
	return value;
}

static __always_inline struct process *process_of(__u32 tgid)
{
	return FIND_OR_MAKE(&processes, &tgid, &NO_PROCESS);
}

// Work is given to the device: from now on it is not idle for all that is known.
static __always_inline void submit(struct process *process, __u32 tgid, struct call *call)
{
	call->is_submission = 1;
	call->sequence = __sync_fetch_and_add(&process->sequence, 1) + 1;
	__sync_fetch_and_add(&process->in_flight, 1);
	__u64 since = __sync_lock_test_and_set(&process->idle_since, 0);
	if (since && call->start_ns > since) {
		__sync_fetch_and_add(&process->idle_ns, call->start_ns - since);
		__sync_fetch_and_add(&process->idle_times, 1);
	}
	struct handle key = { tgid, call->queue };
	__u64 generation = process->generation + 1;
	struct queue fresh = { generation, call->sequence };
	struct queue *queue = bpf_map_lookup_elem(&queues, &key);
	if (!queue) {
		if (bpf_map_update_elem(&queues, &key, &fresh, BPF_NOEXIST) == 0)
			__sync_fetch_and_add(&process->dirty_queues, 1);
		else
			note_lost();
		return;
	}
	queue->sequence = call->sequence;
	if (__sync_lock_test_and_set(&queue->dirty, generation) != generation)
		__sync_fetch_and_add(&process->dirty_queues, 1);
}

// Nothing is left to do on any queue, as of `sequence`.
static __always_inline void begin_idleness(struct process *process, __u64 sequence, __u64 now)
{
	if (process->dirty_queues || process->in_flight || process->sequence != sequence || process->idle_since)
		return;
	process->idle_since = now;
	// Another thread may just have given it work.
	if (process->sequence != sequence)
		process->idle_since = 0;
}

// A wait for `queue` has returned that knew of the work up to `sequence`.
static __always_inline void drained(struct process *process, __u32 tgid, __u64 queue_handle, __u64 sequence, __u64 now)
{
	struct handle key = { tgid, queue_handle };
	struct queue *queue = bpf_map_lookup_elem(&queues, &key);
	if (!queue || process->in_flight || queue->sequence > sequence)
		return;
	__u64 generation = process->generation + 1;
	if (__sync_lock_test_and_set(&queue->dirty, 0) == generation)
		__sync_fetch_and_add(&process->dirty_queues, -1);
	begin_idleness(process, process->sequence, now);
}

static __always_inline void all_drained(struct process *process, __u64 sequence, __u64 now)
{
	if (process->in_flight || process->sequence != sequence)
		return;
	__sync_fetch_and_add(&process->generation, 1);
	process->dirty_queues = 0;
	begin_idleness(process, sequence, now);
}

static __always_inline void count_launch(struct process *process, __u32 tgid, __u64 handle)
{
	__sync_fetch_and_add(&process->launches, 1);
	struct handle key = { tgid, handle };
	struct name *name = bpf_map_lookup_elem(&kernels, &key);
	if (!name) {
		__u32 zero = 0;
		name = bpf_map_lookup_elem(&scratch, &zero);
		if (!name)
			return;
		// No name begins like this: the handle follows.
		__builtin_memset(name, 0, sizeof(*name));
		name->text[0] = 1;
		*(__u64 *)(name->text + 8) = handle;
	}
	__u64 none = 0;
	__u64 *count = FIND_OR_MAKE(&launches, name, &none);
	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void freed(struct process *process, __u32 tgid, __u64 handle)
{
	struct handle key = { tgid, handle };
	struct allocation *found = bpf_map_lookup_elem(&allocations, &key);
	if (!found || __sync_fetch_and_add(&found->references, -1) != 1)
		return;
	__sync_fetch_and_add(&process->live_bytes, -found->bytes);
	__sync_fetch_and_add(&process->frees, 1);
	bpf_map_delete_elem(&allocations, &key);
}

static __always_inline void allocated(struct process *process, __u32 tgid, __u64 handle, __u64 bytes)
{
	struct handle key = { tgid, handle };
	struct allocation fresh = { bytes, 1 };
	struct allocation *old = bpf_map_lookup_elem(&allocations, &key);
	// Its end was not seen.
	if (old)
		__sync_fetch_and_add(&process->live_bytes, -old->bytes);
	if (bpf_map_update_elem(&allocations, &key, &fresh, BPF_ANY) != 0) {
		note_lost();
		return;
	}
	__u64 live = __sync_fetch_and_add(&process->live_bytes, bytes) + bytes;
	if (live > process->peak_bytes)
		process->peak_bytes = live;
	__sync_fetch_and_add(&process->allocated_bytes, bytes);
	__sync_fetch_and_add(&process->allocations, 1);
}

// What the call does to the device, as far as that is known when it begins.
static __always_inline void begin_effects(struct call *call, struct pt_regs *registers, __u32 tgid, __u32 tid)
{
	__u64 cookie = call->cookie;
	struct process *process = process_of(tgid);
	if (!process)
		return;
	call->queue = 0;
	if (COOKIE_QUEUE(cookie) == UNKNOWN_QUEUE)
		call->queue = ~0ULL;
	else if (COOKIE_QUEUE(cookie) == CONFIGURED_QUEUE)
		bpf_probe_read_user(&call->queue, sizeof(call->queue),
				    (const void *)(argument(registers, 1) + CONFIGURED_QUEUE_OFFSET));
	else
		call->queue = argument(registers, COOKIE_QUEUE(cookie));
	// The stream that each thread has for itself.
	if (COOKIE_PER_THREAD(cookie) && call->queue == 0)
		call->queue = 2;
	if (call->queue == 2)
		call->queue = (__u64)tid << 16 | 2;
	call->sequence = process->sequence;
	struct handle key = { tgid, call->handle };
	switch (COOKIE_CLASS(cookie)) {
	case CLASS_LAUNCH:
		if (COOKIE_HANDLE(cookie))
			count_launch(process, tgid, call->handle);
		else
			__sync_fetch_and_add(&process->launches, 1);
		submit(process, tgid, call);
		break;
	case CLASS_COPY:
		submit(process, tgid, call);
		break;
	case CLASS_FREE:
		freed(process, tgid, call->handle);
		break;
	case CLASS_RETAIN: {
		struct allocation *found = bpf_map_lookup_elem(&allocations, &key);
		if (found)
			__sync_fetch_and_add(&found->references, 1);
		break;
	}
	case CLASS_RECORD: {
		struct handle of_queue = { tgid, call->queue };
		struct queue *queue = bpf_map_lookup_elem(&queues, &of_queue);
		struct event event = { call->queue, queue ? queue->sequence : 0 };
		bpf_map_update_elem(&events, &key, &event, BPF_ANY);
		break;
	}
	}
}

static __always_inline void end_effects(struct call *call, __u32 tgid, __u64 result, bool has_failed, __u64 now)
{
	struct process *process = bpf_map_lookup_elem(&processes, &tgid);
	if (!process)
		return;
	__u64 cookie = call->cookie;
	if (call->is_submission)
		__sync_fetch_and_add(&process->in_flight, -1);
	if (has_failed)
		return;
	switch (COOKIE_CLASS(cookie)) {
	case CLASS_COPY:
		if (call->is_submission == 2)
			drained(process, tgid, call->queue, call->sequence, now);
		break;
	case CLASS_WAIT:
		drained(process, tgid, call->queue, call->sequence, now);
		break;
	case CLASS_WAIT_ALL:
		all_drained(process, call->sequence, now);
		break;
	case CLASS_WAIT_EVENT: {
		struct handle key = { tgid, call->handle };
		struct event *event = bpf_map_lookup_elem(&events, &key);
		if (event)
			drained(process, tgid, event->queue, event->sequence, now);
		break;
	}
	case CLASS_ALLOC: {
		__u64 handle = result;
		if (COOKIE_HANDLE(cookie) != RETURNED &&
		    bpf_probe_read_user(&handle, sizeof(handle), (const void *)call->handle) != 0)
			break;
		if (handle)
			allocated(process, tgid, handle, call->bytes);
		break;
	}
	}
}

// Remembers what a kernel is called, or which entry point was asked for.
static __always_inline void take_name(struct call *call, __u32 tgid, __u64 result, bool has_failed)
{
	__u32 zero = 0;
	__u32 class = COOKIE_CLASS(call->cookie);
	struct name *name = bpf_map_lookup_elem(&scratch, &zero);
	if (!name)
		return;
	__builtin_memset(name, 0, sizeof(*name));
	if (bpf_probe_read_user_str(name->text, NAME_BYTES, (const void *)call->name) <= 1)
		return;
	__u64 handle = result;
	if (COOKIE_HANDLE(call->cookie) != RETURNED) {
		handle = 0;
		bpf_probe_read_user(&handle, sizeof(handle), (const void *)call->handle);
	}
	if (class == CLASS_KERNEL) {
		struct handle key = { tgid, handle };
		if (!has_failed && bpf_map_update_elem(&kernels, &key, name, BPF_ANY) != 0)
			note_lost();
		return;
	}
	struct asked never = {};
	struct asked *asked_for = FIND_OR_MAKE(&asked, name, &never);
	if (!asked_for)
		return;
	__sync_fetch_and_add(&asked_for->times, 1);
	if (has_failed || !handle)
		__sync_fetch_and_add(&asked_for->refused, 1);
}

static __always_inline int begin(struct pt_regs *registers)
{
	__u64 ids = bpf_get_current_pid_tgid();
	__u32 tgid = ids >> 32, tid = (__u32)ids;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread) {
		if (!bpf_map_lookup_elem(&traced, &tgid))
			return 0;
		thread = FIND_OR_MAKE(&threads, &tid, &NO_THREAD);
		if (!thread)
			return 0;
	}
	__u64 stack = PT_REGS_SP(registers);
	// Calls whose frames are gone have been left without a return: by an exception, or longjmp.
	for (int i = 0; i < MAX_DEPTH; i++) {
		__u64 depth = thread->depth;
		if (depth == 0 || depth > MAX_DEPTH || thread->calls[(depth - 1) & (MAX_DEPTH - 1)].stack > stack)
			break;
		thread->depth = depth - 1;
	}
	__u64 cookie = bpf_get_attach_cookie(registers);
	__u32 index = COOKIE_FUNCTION(cookie);
	struct function *function = FIND_OR_MAKE(&functions, &index, &NO_FUNCTION);
	if (!function)
		return 0;
	__u64 bytes = argument(registers, COOKIE_SIZE(cookie)) * COOKIE_UNIT(cookie);
	if (COOKIE_FACTOR(cookie))
		bytes *= argument(registers, COOKIE_FACTOR(cookie));
	function->calls++;
	function->bytes += bytes;
	__u64 depth = thread->depth;
	if (depth >= MAX_DEPTH)
		return 0;
	struct call *call = &thread->calls[depth & (MAX_DEPTH - 1)];
	call->cookie = cookie;
	call->start_ns = bpf_ktime_get_ns();
	call->stack = stack;
	call->handle = argument(registers, COOKIE_HANDLE(cookie));
	call->name = argument(registers, COOKIE_NAME(cookie));
	call->bytes = bytes;
	call->is_outermost = depth == 0;
	call->is_submission = 0;
	thread->depth = depth + 1;
	if (depth == 0 && COOKIE_CLASS(cookie) != CLASS_OTHER) {
		begin_effects(call, registers, tgid, tid);
		__u32 blocking = COOKIE_BLOCKING(cookie);
		if (call->is_submission && blocking && (blocking == RETURNED || (__u32)argument(registers, blocking)))
			call->is_submission = 2;
	}
	return 0;
}

static __always_inline int end(struct pt_regs *registers)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 ids = bpf_get_current_pid_tgid();
	__u32 tgid = ids >> 32, tid = (__u32)ids;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread)
		return 0;
	__u32 index = COOKIE_FUNCTION(bpf_get_attach_cookie(registers));
	struct call *call = 0;
	for (int i = 0; i < MAX_DEPTH; i++) {
		__u64 depth = thread->depth;
		if (depth == 0 || depth > MAX_DEPTH)
			return 0;
		struct call *last = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
		if (COOKIE_FUNCTION(last->cookie) == index) {
			thread->depth = depth - 1;
			call = last;
			break;
		}
		// Deeper than is kept: the calls that are kept are still to return.
		if (depth == MAX_DEPTH)
			return 0;
		thread->depth = depth - 1;
	}
	if (!call)
		return 0;
	struct function *function = bpf_map_lookup_elem(&functions, &index);
	if (!function)
		return 0;
	__u64 cookie = call->cookie;
	__u64 result = PT_REGS_RC(registers);
	bool has_failed = COOKIE_RETURNS_HANDLE(cookie) ? result == 0 : (__u32)result != 0;
	if (COOKIE_RETURNS_NOTHING(cookie))
		has_failed = false;
	__u64 ns = now - call->start_ns;
	__u32 bucket = 0;
	__u64 left = ns;
	for (int shift = 32; shift; shift >>= 1) {
		if (left >> shift) {
			bucket += shift;
			left >>= shift;
		}
	}
	function->returns++;
	function->failures += has_failed;
	function->total_ns += ns;
	if (ns > function->max_ns)
		function->max_ns = ns;
	if (!function->min_ns || ns < function->min_ns)
		function->min_ns = ns;
	function->histogram[bucket < NUM_BUCKETS ? bucket : NUM_BUCKETS - 1]++;
	if (COOKIE_NAME(cookie))
		take_name(call, tgid, result, has_failed);
	if (call->is_outermost && COOKIE_CLASS(cookie) != CLASS_OTHER)
		end_effects(call, tgid, result, has_failed, now);
	return 0;
}

// Many functions by one link, where Linux has that (from 6.6 on).
SEC("uprobe.multi")
int begin_many(struct pt_regs *registers)
{
	return begin(registers);
}

SEC("uretprobe.multi")
int end_many(struct pt_regs *registers)
{
	return end(registers);
}

// One function by one link.
SEC("uprobe")
int begin_one(struct pt_regs *registers)
{
	return begin(registers);
}

SEC("uretprobe")
int end_one(struct pt_regs *registers)
{
	return end(registers);
}

SEC("raw_tp/sched_process_fork")
int follow_child(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *parent = (struct task_struct *)context->args[0];
	struct task_struct *child = (struct task_struct *)context->args[1];
	__u32 from = BPF_CORE_READ(parent, tgid), to = BPF_CORE_READ(child, tgid);
	if (from == to || !bpf_map_lookup_elem(&traced, &from))
		return 0;
	__u64 parent_too = from;
	if (bpf_map_update_elem(&traced, &to, &parent_too, BPF_ANY) != 0)
		note_lost();
	return 0;
}

// Its id may become another's.
SEC("raw_tp/sched_process_exit")
int forget_thread(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *task = (struct task_struct *)context->args[0];
	__u32 tid = BPF_CORE_READ(task, pid), tgid = BPF_CORE_READ(task, tgid);
	if (!bpf_map_lookup_elem(&traced, &tgid))
		return 0;
	bpf_map_delete_elem(&threads, &tid);
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&traced, &tgid);
	return 0;
}

// What it called before does not return any more.
SEC("raw_tp/sched_process_exec")
int forget_calls(struct bpf_raw_tracepoint_args *context)
{
	struct task_struct *task = (struct task_struct *)context->args[0];
	__u32 tid = BPF_CORE_READ(task, pid);
	bpf_map_delete_elem(&threads, &tid);
	return 0;
}
